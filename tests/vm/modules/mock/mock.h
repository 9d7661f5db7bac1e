/* SPDX-License-Identifier: GPL-2.0 */
/*
 * TEST DOUBLES for NVIDIA's kernel modules: names, versions, parameters, devices and reference counts;
 * nothing else.
 */
#ifndef MOCK_H
#define MOCK_H

#include <linux/module.h>

/* a use of it makes the module graph: uvm, modeset and peermem depend on nvidia */
int mock_nvidia_symbol(void);

#define MOCK_MODULE(text)                                                                         \
	static int fail;                                                                          \
	module_param(fail, int, 0444);                                                            \
	MODULE_PARM_DESC(fail, "errno that the module's initialisation fails with");              \
	MODULE_LICENSE("GPL");                                                                    \
	MODULE_VERSION(MOCK_VERSION);                                                             \
	MODULE_DESCRIPTION("test double: " text)

#endif
