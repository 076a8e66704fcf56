package demo

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child if this process dies without stopping the child.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
