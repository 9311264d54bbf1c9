/* The least that a types file must have. The size of `queue` is what the configuration step found out. */
enum kfd_queue_type { KFD_QUEUE_TYPE_COMPUTE };
enum kfd_queue_format { KFD_QUEUE_FORMAT_AQL };
struct task_struct { int pid; };
struct queue_properties { long queue_size; };
struct queue { char configured[CONFIGURED]; struct queue_properties properties; };
struct kfd_process { struct task_struct *lead_thread; };
int kfd_process_evict_queues(struct kfd_process *p, int trigger);
