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

func (m Machine) checkKernel(s *Section) {
	release := m.readText("proc/sys/kernel/osrelease")
	switch major, minor, ok := releaseNumbers(release); {
	case !ok:
		s.addWarning("kernel", fmt.Sprintf("unknown: /proc/sys/kernel/osrelease has %q", release),
			"mount /proc; kvferry needs Linux 5.1 or later")
	case major < kernelMajor || major == kernelMajor && minor < kernelMinor:
		s.addProblem("kernel", release, "boot Linux 5.1 or later: older kernels cannot seal a pool against writes of other processes")
	default:
		s.addOK("kernel", "%s", release)
	}
	if err := m.Memfd(); err != nil {
		remedy := "allow memfd_create and fcntl with F_ADD_SEALS in the container's seccomp profile; Linux 5.1 or later is " +
			"needed"
		if noexec, _ := m.readNumber("proc/sys/vm/memfd_noexec"); noexec >= 2 {
			remedy = "sysctl vm.memfd_noexec=1: with 2, the kernel refuses memory files that are not created as non-executable"
		}
		s.addProblem("memory files", err.Error(), remedy)
	} else {
		s.addOK("memory files", "can be created, mapped and sealed")
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

func (m Machine) checkBoot(s *Section) {
	if id := m.readText("proc/sys/kernel/random/boot_id"); id == "" {
		s.addProblem("boot id", "/proc/sys/kernel/random/boot_id cannot be read",
			"mount /proc: processes use the boot ID to find out that they share a host, and the shm plane needs it")
	} else {
		s.addOK("boot id", "%s", id)
	}
	boottime, monotonic, err := m.Clocks()
	switch suspended := (boottime - monotonic).Truncate(time.Second); {
	case err != nil:
		s.addProblem("clocks", err.Error(),
			"allow clock_gettime of CLOCK_BOOTTIME in the container's seccomp profile: leases use this clock")
	case suspended > 0:
		s.addNote("clocks", fmt.Sprintf("the machine was suspended for %v since it booted", suspended),
			"disable suspend on a serving machine: leases expire while the machine is suspended")
	default:
		s.addOK("clocks", "CLOCK_BOOTTIME and CLOCK_MONOTONIC agree: never suspended")
	}
}
