// SPDX-License-Identifier: GPL-2.0
/*
 * mes.c - the fake firmware scheduler of gfx11, which answers instead of cp.c.
 *
 * With MES the driver sends no runlists: it hands each queue to the firmware, and takes it
 * away again, by two functions of the GPU's generation, and waits for the answer of each.
 * The driver's own table of them is used; they are redirected, so that a probe on their
 * entry or return sees them called by the driver.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include "kfdsim.h"
#include "symbols.h"

/* of each answer, from now on */
static u32 answer_ms, answer_error;

/* what the firmware was asked, and how long the answers took in all */
static atomic64_t added, removed, failed, took_ns;

int mes_set(u32 ms, u32 error)
{
	/* the driver itself gives up after 2.1 s */
	if (ms > 10000 || error > MAX_ERRNO)
		return -EINVAL;
	WRITE_ONCE(answer_ms, ms);
	WRITE_ONCE(answer_error, error);
	return 0;
}

void mes_after_reset(void)
{
	WRITE_ONCE(answer_error, 0);
}

static ssize_t calls_read(struct file *file, char __user *to, size_t length, loff_t *pos)
{
	char text[128];
	int written = scnprintf(text, sizeof(text), "added %lld\nremoved %lld\nfailed %lld\nns %lld\n",
				atomic64_read(&added), atomic64_read(&removed),
				atomic64_read(&failed), atomic64_read(&took_ns));

	return simple_read_from_buffer(to, length, pos, text, written);
}

const struct file_operations mes_calls_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = calls_read,
};

#if SIM_HAS_MES
static int answer(atomic64_t *calls)
{
	u64 begin = ktime_get_ns();
	u32 ms = READ_ONCE(answer_ms);
	int err = -(int)READ_ONCE(answer_error);

	/* the driver polls, under a mutex */
	if (ms)
		msleep(ms);
	atomic64_inc(err ? &failed : calls);
	atomic64_add(ktime_get_ns() - begin, &took_ns);
	return err;
}

static int add_hw_queue(struct amdgpu_mes *mes, struct mes_add_queue_input *input)
{
	return answer(&added);
}

static int remove_hw_queue(struct amdgpu_mes *mes, struct mes_remove_queue_input *input)
{
	return answer(&removed);
}

int mes_start(struct sim *s)
{
	struct amdgpu_device *adev = s->adev;

	adev->mes.funcs = (void *)symbol_address("mes_v11_0_funcs");
	if (!adev->mes.funcs)
		return -ENOENT;
	adev->mes.adev = adev;
	mutex_init(&adev->mes.mutex_hidden);
	/* an interface that wants the write pointer's address; too old to suspend all queues at once */
	adev->mes.sched_version = 2 << AMDGPU_MES_API_VERSION_SHIFT;
	adev->enable_mes = true;
	s->res.enable_mes = true;
	/* gfx11 is skipped without them */
	adev->have_atomics_support = true;
	return 0;
}

/* A queue's write pointer, where the firmware sees it: only passed on to it. */
static int map_gtt_bo_to_gart(struct amdgpu_bo *bo, struct amdgpu_bo **bo_gart)
{
	uint64_t gpu;
	void *cpu;

	return sim_make_gtt(PAGE_SIZE, (void **)bo_gart, &gpu, &cpu);
}

static u64 bo_gpu_offset(struct amdgpu_bo *bo)
{
	return sim_gpu_address(PAGE_SIZE);
}

/* The buffers of a queue stand for nothing (doorbell.c): nothing is freed with the last reference. */
static void bo_unref(struct amdgpu_bo **bo)
{
	*bo = NULL;
}

/* A function of the driver's table of the firmware's. It is in no header, but its type is. */
#define REDIRECT_MES(member, ours) \
	{ "mes_v11_0_" #member, (void *)(ours) + \
	  BUILD_BUG_ON_ZERO(!__same_type(((struct amdgpu_mes_funcs *)0)->member, &ours)) }

struct redirect mes_redirects[] = {
	REDIRECT_MES(add_hw_queue, add_hw_queue),
	REDIRECT_MES(remove_hw_queue, remove_hw_queue),
	/* the shader debugger's settings, flushed as a process leaves the GPU */
	{ "mes_v11_0_misc_op", sim_nothing },
	REDIRECT(amdgpu_amdkfd_map_gtt_bo_to_gart, map_gtt_bo_to_gart),
	REDIRECT(amdgpu_bo_gpu_offset, bo_gpu_offset),
	REDIRECT(amdgpu_bo_unref, bo_unref),
	{ }
};
#else
int mes_start(struct sim *s)
{
	return -EOPNOTSUPP;
}

struct redirect mes_redirects[] = {
	{ }
};
#endif
