//! Checks the dashboards against the schema that Grafana publishes: the TypeScript types of its npm package
//! `@grafana/schema`, made from the same source as Grafana itself. tsc takes each dashboard for a literal of
//! them: unknown fields, missing ones and values not in an enum are errors.

use super::json::{GRAFANA, dashboard as as_json};
use super::panel::Dashboard;
use crate::paths;
use crate::run::{self, step};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::fs;
use std::process::Command;

const TYPESCRIPT: &str = "5.9.3";

/// Types of a whole dashboard. The published ones leave open what depends on the type of a panel; enums
/// become the strings and numbers that JSON has. The query of the data source Prometheus is not part of the
/// package: the fields in use are listed here.
const TYPES: &str = r#"
import { Dashboard, FieldConfig, Panel, RowPanel, VariableModel } from '@grafana/schema';
import * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import * as states from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Plain<T> = T extends string ? (string extends T ? string : `${T}`)
    : T extends (infer U)[] ? Plain<U>[]
    : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;

interface Query {
    refId: string; datasource: { type: 'prometheus'; uid: string }; editorMode: 'code'; expr: string;
    format: 'time_series' | 'table' | 'heatmap'; instant: boolean; legendFormat: string; range: boolean;
}
type Transformation =
    | { id: 'filterFieldsByName'; options: { include: { names: string[] } } }
    | { id: 'merge'; options: {} }
    | { id: 'organize'; options: {
        excludeByName: Record<string, boolean>; includeByName: Record<string, boolean>;
        indexByName: Record<string, number>; renameByName: Record<string, string>;
      } };
type Of<Type, Options, Custom> = Plain<Omit<Panel, 'fieldConfig' | 'options' | 'targets' | 'type' | 'transformations'>> & {
    type: Type; options: Plain<Options>; targets: Query[]; transformations: Transformation[];
    fieldConfig: {
        defaults: Plain<Omit<FieldConfig, 'custom'>> & { custom: Plain<Custom> };
        overrides: { matcher: { id: 'byName'; options: string };
            properties: ({ id: 'unit'; value: string } | { id: 'links'; value: { title: string; url: string }[] })[] }[];
    };
};
type Any = Plain<Omit<RowPanel, 'panels'>> & { panels: never[] }
    | Of<'heatmap', heatmap.Options, heatmap.FieldConfig>
    | Of<'stat', stat.Options, {}>
    | Of<'state-timeline', states.Options, states.FieldConfig>
    | Of<'table', table.Options, table.FieldConfig>
    | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>;
type Whole = Plain<Omit<Dashboard, 'panels' | 'templating'>> & {
    panels: Any[]; templating: { list: (Plain<VariableModel> & { definition?: string })[] };
};
"#;

pub(super) fn has_npm() -> bool {
    Command::new("npm").arg("--version").output().is_ok()
}

/// # Errors
/// When a dashboard does not match the schema; tsc shows the place, in target/grafana-schema/dashboards.ts.
pub(super) fn check(dashboards: &[Dashboard]) -> Result<()> {
    let folder = paths::target().join("grafana-schema");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    let mut source = TYPES.to_owned();
    for dashboard in dashboards {
        source += &format!("export const {}: Whole = {:#};\n", dashboard.name, as_json(dashboard));
    }
    write("dashboards.ts", &source)?;
    let config = json!({
        "compilerOptions": {
            "noEmit": true, "strict": true, "skipLibCheck": true, "target": "es2022", "module": "nodenext", "types": [],
        },
        "files": ["dashboards.ts"],
    });
    write("tsconfig.json", &config.to_string())?;
    if !has_npm() {
        bail!("npm is not installed: it fetches Grafana's schema (Debian has it as `npm`)");
    }
    step(format!("fetching the schema of Grafana {GRAFANA}"));
    let packages = [format!("@grafana/schema@{GRAFANA}"), format!("typescript@{TYPESCRIPT}")];
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--ignore-scripts", "--no-save", "--prefix"]).arg(&folder);
    npm.arg("--cache").arg(folder.join("npm"));
    run::output(npm.args(packages))?;
    run::run(Command::new(folder.join("node_modules/.bin/tsc")).arg("--project").arg(&folder))?;
    step(format!("{} dashboards have the schema of Grafana {GRAFANA}", dashboards.len()));
    Ok(())
}
