package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kernelMajor and kernelMinor are the first version of Linux with the seal that keeps other processes from writing into
// a pool.
const kernelMajor, kernelMinor = 5, 1

func (m Machine) kernel(s *Section) {
	release := m.text("proc/sys/kernel/osrelease")
	switch major, minor, ok := releaseNumbers(release); {
	case !ok:
		s.warn("kernel", fmt.Sprintf("unknown: /proc/sys/kernel/osrelease has %q", release),
			"mount /proc; kvferry needs Linux 5.1 or later")
	case major < kernelMajor || major == kernelMajor && minor < kernelMinor:
		s.problem("kernel", release, "boot Linux 5.1 or later: older ones cannot seal a pool against other writers")
	default:
		s.ok("kernel", "%s", release)
	}
	if err := m.Memfd(); err != nil {
		remedy := "allow memfd_create and fcntl with F_ADD_SEALS in the container's seccomp profile; Linux 5.1 or later is " +
			"needed"
		if noexec, _ := m.number("proc/sys/vm/memfd_noexec"); noexec >= 2 {
			remedy = "sysctl vm.memfd_noexec=1: 2 refuses every memory file that is not asked for as not executable"
		}
		s.problem("memory files", err.Error(), remedy)
	} else {
		s.ok("memory files", "can be made, mapped and sealed")
	}
}

// releaseNumbers reads the start of a kernel's release, such as 6.1.0-18-amd64.
func releaseNumbers(release string) (major, minor int, ok bool) {
	first, rest, dotted := strings.Cut(release, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, err := strconv.Atoi(first)
	if err != nil || !dotted {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(rest[:end])
	return major, minor, err == nil
}

func (m Machine) boot(s *Section) {
	if id := m.text("proc/sys/kernel/random/boot_id"); id == "" {
		s.problem("boot id", "/proc/sys/kernel/random/boot_id cannot be read",
			"mount /proc: processes know by it that they share a host, and the shm plane does not open without it")
	} else {
		s.ok("boot id", "%s", id)
	}
	boottime, monotonic, err := m.Clocks()
	switch suspended := (boottime - monotonic).Truncate(time.Second); {
	case err != nil:
		s.problem("clocks", err.Error(),
			"allow clock_gettime of CLOCK_BOOTTIME in the container's seccomp profile: leases are counted by it")
	case suspended > 0:
		s.note("clocks", fmt.Sprintf("the machine was suspended for %v since it booted", suspended),
			"switch suspend off on a serving machine: leases run on while it sleeps, and end")
	default:
		s.ok("clocks", "CLOCK_BOOTTIME and CLOCK_MONOTONIC agree: never suspended")
	}
}
