package backing

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Locked memory is never swapped out, so that no reader of a page waits for a disk. Linux lets a process lock as much
// as RLIMIT_MEMLOCK allows, often 64 KiB or 8 MiB, unless the process has CAP_IPC_LOCK.

const (
	limitMemlock = 8  // RLIMIT_MEMLOCK
	capIPCLock   = 14 // the number of its bit in CapEff
)

// A LockShortage is the error of memory that cannot be locked: because of the limit (Cause is nil), or because the
// kernel refused (Cause).
type LockShortage struct {
	RequestedBytes uint64
	Limit          uint64 // RLIMIT_MEMLOCK, in bytes; math.MaxUint64 if there is none
	LockedBytes    uint64 // bytes that the process has locked already
	Cause          error  // the kernel's error; nil if the kernel was not asked
}

func (u *LockShortage) Error() string {
	limit := "RLIMIT_MEMLOCK is " + strconv.FormatUint(u.Limit, 10)
	if u.Limit == math.MaxUint64 {
		limit = "RLIMIT_MEMLOCK is unlimited"
	}
	text := fmt.Sprintf("cannot lock %d bytes: %s, of which %d are in use, and the process has no CAP_IPC_LOCK",
		u.RequestedBytes, limit, u.LockedBytes)
	if u.Cause != nil {
		text = fmt.Sprintf("lock %d bytes: %v (%s, of which %d were in use)", u.RequestedBytes, u.Cause, limit, u.LockedBytes)
	}
	return text
}

func (u *LockShortage) Unwrap() error { return u.Cause }

// CheckLockLimit returns a *LockShortage if this process may not lock so many bytes more. A container's policy is not
// checked; if the policy forbids the lock, LockMemory fails.
func CheckLockLimit(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(limitMemlock, &limit); err != nil {
		return fmt.Errorf("read the limit of locked memory: %w", err)
	}
	return checkLockLimit("/", size, limit.Cur)
}

// checkLockLimit reads the files of proc below root.
func checkLockLimit(root string, size, limit uint64) error {
	if limit == math.MaxUint64 {
		return nil
	}
	// Without /proc only the limit is known, so a process with CAP_IPC_LOCK is refused, too.
	status, _ := os.ReadFile(filepath.Join(root, "proc/self/status"))
	if HasIPCLock(status) {
		return nil
	}
	lockedKiB, _ := parseField(status, "VmLck:")
	if locked := lockedKiB << 10; size > limit-min(limit, locked) {
		return &LockShortage{RequestedBytes: size, Limit: limit, LockedBytes: locked}
	}
	return nil
}

// HasIPCLock reports whether a process with this status, as in /proc/self/status, has CAP_IPC_LOCK. In the initial
// user namespace no limit applies to such a process.
func HasIPCLock(status []byte) bool {
	for line := range bytes.Lines(status) {
		if text, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			caps, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 16, 64)
			return err == nil && caps&(1<<capIPCLock) != 0
		}
	}
	return false
}

// LockMemory keeps memory from being swapped out until the memory is unmapped. Memory of a file is then locked for all
// processes that map the file. The error is a *LockShortage.
func LockMemory(mem []byte) error {
	if err := syscall.Mlock(mem); err != nil {
		u := &LockShortage{RequestedBytes: uint64(len(mem)), Limit: math.MaxUint64, Cause: err}
		var limit syscall.Rlimit
		if syscall.Getrlimit(limitMemlock, &limit) == nil {
			u.Limit = limit.Cur
		}
		if status, err := os.ReadFile("/proc/self/status"); err == nil {
			kib, _ := parseField(status, "VmLck:")
			u.LockedBytes = kib << 10
		}
		return u
	}
	return nil
}
