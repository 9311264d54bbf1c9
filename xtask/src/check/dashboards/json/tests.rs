use super::*;
use crate::check::dashboards::all;
use crate::check::dashboards::panel::table;

/// x, y, width and height.
fn place(panel: &Value) -> [u64; 4] {
    ["x", "y", "w", "h"].map(|part| panel["gridPos"][part].as_u64().unwrap())
}

#[test]
fn no_panel_lies_on_another_or_outside() {
    for one in &all() {
        let json = dashboard(one);
        let panels = json["panels"].as_array().unwrap();
        for (number, panel) in panels.iter().enumerate() {
            let [x, y, w, h] = place(panel);
            assert!(x + w <= 24, "{}: {}", one.name, panel["title"]);
            for other in &panels[..number] {
                let [left, top, width, height] = place(other);
                let is_apart = x >= left + width || left >= x + w || y >= top + height || top >= y + h;
                assert!(is_apart, "{}: {} lies on {}", one.name, panel["title"], other["title"]);
                assert_ne!(panel["id"], other["id"]);
            }
        }
    }
}

#[test]
fn a_table_has_its_columns_in_order() {
    let two = table("Title", "", &[("gpu", "GPU")]).query("", "a").query("queues", "b");
    let [filter, _, organize] = &transformations(&two)[..] else { panic!("three are expected") };
    assert_eq!(filter["options"]["include"]["names"], json!(["gpu", "Value #B", "Time"]));
    assert_eq!(organize["options"]["renameByName"], json!({"gpu": "GPU", "Value #B": "queues"}));
    assert_eq!(organize["options"]["indexByName"], json!({"gpu": 0, "Value #B": 1}));
    let one = table("Title", "", &[]).query("queues", "b");
    assert_eq!(transformations(&one)[2]["options"]["renameByName"], json!({"Value": "queues"}));
}

#[test]
fn a_link_takes_the_other_variables_along() {
    let url = |panel| overrides(&panel)[0]["properties"][0]["value"][0]["url"].clone();
    let process = table("Title", "", &[("pid", "PID")]).link("PID", "process", "pid");
    let expected = "/d/kfd-trace-process?${datasource:queryparam}&${job:queryparam}&${instance:queryparam}\
        &var-pid=${__value.raw}&${__url_time_range}";
    assert_eq!(url(process), expected);
    let node = table("Title", "", &[("instance", "node")]).link("node", "node", "instance");
    let expected = "/d/kfd-trace-node?${datasource:queryparam}&${job:queryparam}\
        &var-instance=${__value.raw}&${__url_time_range}";
    assert_eq!(url(node), expected);
}
