//go:build cgo && linux

package hostile_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// errMayNot says that this machine does not let a test do something.
var errMayNot = errors.New("not permitted here")

// bounded puts this process into a group of its own that may have so much memory, until restore.
func bounded(bytes uint64) (restore func(), err error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMayNot, err)
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		mount, limit := "/sys/fs/cgroup", "memory.max"
		switch {
		case len(parts) < 3:
			continue
		case strings.Contains(","+parts[1]+",", ",memory,"):
			mount, limit = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[0] != "0":
			continue
		}
		at := filepath.Join(mount, parts[2])
		if _, err := os.Stat(filepath.Join(at, "cgroup.procs")); err != nil {
			at = mount // A container sees its own group as the top.
		}
		group, err := os.MkdirTemp(at, "kvferry-hostile")
		if err != nil {
			continue
		}
		self := fmt.Appendln(nil, os.Getpid())
		restore := func() {
			_ = os.WriteFile(filepath.Join(at, "cgroup.procs"), self, 0)
			_ = os.Remove(group)
		}
		if err := os.WriteFile(filepath.Join(group, limit), fmt.Appendln(nil, bytes), 0); err == nil {
			err = os.WriteFile(filepath.Join(group, "cgroup.procs"), self, 0)
			if err == nil {
				return restore, nil
			}
		}
		restore()
	}
	return nil, fmt.Errorf("%w: no group of memory can be made", errMayNot)
}

// A node whose folder for sockets is full does not open, and says which folder and why.
func TestFullFolder(t *testing.T) {
	dir := t.TempDir()
	through := []string{"unshare", "--mount", "--", "sh", "-c",
		"mount -t tmpfs -o size=4k,nr_inodes=1 full " + dir + ` && exec "$@"`, "sh"}
	if out, err := exec.Command(through[0], append(through[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no folder of its own for a process: %v: %s", err, out)
	}
	s := setup{Files: 256, Own: "    data: {shm_dir: " + dir + "}\n"}
	cmd := exec.Command(through[0], append(through[1:], os.Args[0], "-test.run=^$")...)
	cmd.Env = append(os.Environ(), s.env())
	out, err := cmd.CombinedOutput()
	for _, said := range []string{"open: faulted", dir, "no space left on device", "set another transfer_channel"} {
		if err == nil || !strings.Contains(string(out), said) {
			t.Errorf("%q is not said in: %s (%v)", said, out, err)
		}
	}
}
