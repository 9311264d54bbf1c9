// SPDX-License-Identifier: GPL-2.0
/*
 * stubs.c - the register accesses, doing nothing.
 *
 * KFD reaches the GPU's registers only through kfd2kgd_calls.  With HWS most queue
 * work is packets on the HIQ (cp.c) and few of these run; hqd_* serve sched_policy=2.
 * Those that show queues which could not be preempted are in give_up.c.
 */
#include "kfdsim.h"

/* Of any type: the caller's arguments are left where they are, the result is 0 or false. */
u64 sim_nothing(void)
{
	return 0;
}

/*
 * What the driver has for this GPU decides which there are: they and their parameters differ
 * from driver to driver, but 0 is everywhere that nothing failed, runs or was found.
 */
void sim_fill_stubs(struct kfd2kgd_calls *calls, const struct kfd2kgd_calls *real)
{
	void *const *from = (void *)real;
	void **to = (void **)calls;
	int i;

	for (i = 0; i < sizeof(*calls) / sizeof(*to); i++)
		to[i] = from[i] ? sim_nothing : NULL;
	/* KFD would use what they did not write: a number to divide by, a dump to free */
	calls->get_cu_occupancy = NULL;
	calls->hqd_dump = NULL;			/* debugfs kfd/hqds must not be read */
	give_up_fill_stubs(calls);
}
