// SPDX-License-Identifier: GPL-2.0
/*
 * redirect.c - puts functions of ours in the place of the driver's, by ftrace.
 *
 * This is livepatch's mechanism: the entry of the real function is left for ours, and
 * a kprobe or BPF program on that entry still fires.  Redirected are only functions
 * that reach TTM or registers, never KFD's queue code.
 */
#include "kfdsim.h"
#include "symbols.h"

static void notrace redirect_thunk(unsigned long ip, unsigned long parent_ip,
				   struct ftrace_ops *ops, sim_ftrace_regs *fregs)
{
	struct redirect *r = container_of(ops, struct redirect, ops);

	/* all of them are there: SAVE_REGS */
	sim_pt_regs(fregs)->ip = (unsigned long)r->to;
}

static int redirect_one(struct redirect *r)
{
	unsigned long from = symbol_address(r->name);
	int err;

	if (!from)
		return -ENOENT;
	r->ops.func = redirect_thunk;
	r->ops.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY | SIM_FTRACE_FLAGS;
	err = ftrace_set_filter_ip(&r->ops, from, 0, 0);
	return err ? err : register_ftrace_function(&r->ops);
}

int redirects_install(struct redirect *table)
{
	struct redirect *r;

	for (r = table; r->name; r++) {
		int err = redirect_one(r);

		if (err) {
			pr_err("redirect of %s: %d\n", r->name, err);
			return err;
		}
	}
	return 0;
}

void redirects_remove(struct redirect *table)
{
	struct redirect *r;

	for (r = table; r->name; r++)
		if (r->ops.flags & FTRACE_OPS_FL_ENABLED)
			unregister_ftrace_function(&r->ops);
}
