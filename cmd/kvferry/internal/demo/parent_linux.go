package demo

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end the child if this process dies without stopping it.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
