package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// superPodChips lists the SoC names of generation A3, whose hosts form super pods.
var superPodChips = []string{
	"Ascend910_9391", "Ascend910_9392", "Ascend910_9381", "Ascend910_9382", "Ascend910_9372", "Ascend910_9362",
}

func chipGeneration(soc string) string {
	switch {
	case strings.HasPrefix(soc, "Ascend910B"):
		return "A2"
	case slices.Contains(superPodChips, soc):
		return "A3"
	default:
		return ""
	}
}

func describeChip(soc string) string {
	switch g := chipGeneration(soc); {
	case soc == "":
		return "unknown: the library does not report the chip"
	case g != "":
		return fmt.Sprintf("%s, generation %s", soc, g)
	default:
		return soc
	}
}

// hostRegistrationKernel is the first minor version of Linux 5 with which existing host memory can be registered.
const hostRegistrationKernel = 11 // of Linux 5

// checkRegistration reports which memory can be registered, and how often. Both depend on the version of CANN and on
// the kernel.
func (m Machine) checkRegistration(s *Section, n NPUs) {
	switch ninth, known := isCANN9(cmp.Or(n.HCCL.Info.CANN, n.Info.CANN)); {
	case !known:
		s.addOK("registrations", "unknown for this CANN; before 9.0: at most 256 in a process, all on one device")
	case ninth:
		s.addOK("registrations", "no limit in CANN; a process may use any devices")
	case len(n.Devices) > 1:
		s.addNote("registrations", "at most 256 in a process, all on one device, before CANN 9.0",
			"run one process for each device: ASCEND_RT_VISIBLE_DEVICES=N kvferry node ...")
	default:
		s.addOK("registrations", "at most 256 in a process, all on one device, before CANN 9.0")
	}
	lacks := slices.Contains(n.Info.Missing, "aclrtHostUnregister") ||
		slices.Contains(n.Info.Missing, "aclrtHostRegister") && slices.Contains(n.Info.Missing, "aclrtHostRegisterV2")
	major, minor, known := releaseNumbers(m.readText("proc/sys/kernel/osrelease"))
	switch {
	case lacks:
		s.addOK("host memory", "can be pinned only by AscendCL's allocator: the library cannot register existing memory")
	case known && (major < 5 || major == 5 && minor < hostRegistrationKernel):
		s.addOK("host memory", "can be pinned only by AscendCL's allocator: existing memory cannot be registered before Linux 5.%d",
			hostRegistrationKernel)
	default:
		s.addOK("host memory", "can be pinned by AscendCL's allocator, or registered at multiples of 4 KiB")
	}
}

// isCANN9 reports whether a version of CANN is 9.0.0 or later. The betas of 9.0.0 do not count, because they have the
// older registry. The result known is false if the text is not a version.
func isCANN9(version string) (ninth, known bool) {
	first, rest, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return false, false
	}
	beta := major == 9 && strings.HasPrefix(rest, "0.0-beta")
	return major >= 9 && !beta, true
}
