// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module that logs its own events: `echo N >/sys/module/my/parameters/requests` makes N requests.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include "request.h"

#define KLOGGER_DEFINE
#include "my.klogger.h"

static int my_set_requests(const char *text, const struct kernel_param *param)
{
	unsigned int i, count;
	int error = kstrtouint(text, 0, &count);

	if (error)
		return error;
	for (i = 0; i < count; i++)
		my_request(i);
	return 0;
}

static const struct kernel_param_ops my_requests = { .set = my_set_requests };
module_param_cb(requests, &my_requests, NULL, 0200);

static int __init my_init(void)
{
	return klogger_register(&klogger_unit_my);
}

static void __exit my_exit(void)
{
	klogger_unregister(&klogger_unit_my);
}

module_init(my_init);
module_exit(my_exit);
MODULE_DESCRIPTION("Logs events of its own with klogger");
MODULE_LICENSE("GPL");
