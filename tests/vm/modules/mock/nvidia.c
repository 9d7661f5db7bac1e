// SPDX-License-Identifier: GPL-2.0
#include <linux/fs.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "mock.h"

#define MAJOR_NUMBER 195 /* as the real module has it, for every minor: nvidia0 is 0, nvidiactl is 255 */
#define DEVICE_NAME "nvidia"

static int NVreg_OpenRmEnableUnsupportedGpus;
module_param(NVreg_OpenRmEnableUnsupportedGpus, int, 0444);
static int NVreg_EnableGpuFirmware = 18;
module_param(NVreg_EnableGpuFirmware, int, 0444);
static char *NVreg_RegistryDwords = "";
module_param(NVreg_RegistryDwords, charp, 0444);

int mock_nvidia_symbol(void)
{
	return 0;
}
EXPORT_SYMBOL(mock_nvidia_symbol);

/* an open file holds a reference on the module through .owner */
static const struct file_operations operations = { .owner = THIS_MODULE };
static struct proc_dir_entry *proc;

static int show_version(struct seq_file *file, void *unused)
{
	seq_puts(file, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " MOCK_VERSION
		       "  Release Build  (test double)\n");
	return 0;
}

MOCK_MODULE("the nvidia module");

static int __init mock_init(void)
{
	int error;

	if (fail)
		return -fail;
	error = register_chrdev(MAJOR_NUMBER, DEVICE_NAME, &operations);
	if (error < 0)
		return error;
	proc = proc_mkdir("driver/nvidia", NULL);
	if (!proc || !proc_create_single("version", 0444, proc, show_version)) {
		proc_remove(proc);
		unregister_chrdev(MAJOR_NUMBER, DEVICE_NAME);
		return -ENOMEM;
	}
	return 0;
}

static void __exit mock_exit(void)
{
	proc_remove(proc);
	unregister_chrdev(MAJOR_NUMBER, DEVICE_NAME);
}

module_init(mock_init);
module_exit(mock_exit);
