package doctor

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/hccn"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// NPUs is AscendCL's report of the NPUs of this machine.
type NPUs struct {
	Err      error // why the other fields are empty: there is no library, or the library refuses
	Info     acl.Info
	Devices  []Device
	CloseErr error // the error of releasing resources
	HCCL     HCCL
}

// Libraries gives the paths of the libraries for NPUs. An empty path means the search that a node makes.
type Libraries struct {
	ACL  string
	HCCL comm.Options
}

// A Device is one NPU with the errors of its calls. The failure of one call does not affect the other values.
type Device struct {
	ID       int // AscendCL's number, among the visible devices
	Physical int // the number in npu-smi and hccn.conf; -1 if unknown
	Err      error

	Free, Total uint64 // bytes of device memory
	SuperPod    *SuperPod
	Reaches     map[int]bool // other devices by ID: true if direct copies to them are possible
	Copies      []Speed
}

// A SuperPod is a device's place in a super pod, in AscendCL's numbering.
type SuperPod struct{ ID, Server, Device int64 }

// A Speed is the result of one measured copy.
type Speed struct {
	Name      string
	PerSecond float64 // bytes
	Err       error
}

const missingRemedy = "install a newer CANN; docs/ascend.md describes what kvferry does without each function"

// checkNPUs checks the library and everything that is common to all devices. The argument wanted is true if the options
// or the configuration require NPUs.
func (m Machine) checkNPUs(s *Section, n NPUs, wanted bool) {
	cards := m.findCards()
	if n.Err != nil {
		m.addNoLibrary(s, n.Err, wanted, len(cards) != 0)
		m.checkDeviceFiles(s, cards)
		return
	}
	s.addOK("library", "%s", n.Info.Library)
	if n.Info.CANN == "" {
		s.addNote("cann", "unknown: neither the library nor the toolkit gives a version",
			"source CANN's set_env.sh, which sets ASCEND_HOME_PATH")
	} else {
		s.addOK("cann", "%s, interface %v", n.Info.CANN, n.Info.ACL)
	}
	m.checkDriver(s)
	if strings.HasPrefix(n.Info.SoC, "Ascend950") {
		s.addNote("chip", n.Info.SoC,
			"set pd_buffer_device: cpu and transfer_channel: auto: HCCL functions that nodes need are not known to work on "+
				"this chip")
	} else {
		s.addOK("chip", "%s", describeChip(n.Info.SoC))
	}
	if len(n.Info.Missing) != 0 {
		s.addNote("missing functions", strings.Join(n.Info.Missing, ", "), missingRemedy)
	}
	if len(n.Info.Signals) != 0 {
		addSignalHandlers(s, n.Info.Signals)
	}
	if visible := m.Env("ASCEND_RT_VISIBLE_DEVICES"); visible != "" {
		s.addOK("visible devices", "ASCEND_RT_VISIBLE_DEVICES=%s", visible)
	}
	if len(n.Devices) == 0 {
		verdict := Note
		if wanted {
			verdict = Problem
		}
		s.addRow("devices", "none", verdict,
			"check npu-smi info, the devices of the container, and ASCEND_RT_VISIBLE_DEVICES")
	} else {
		s.addOK("devices", "%d", len(n.Devices))
	}
	if n.CloseErr != nil {
		s.addWarning("closing", n.CloseErr.Error(), deviceRemedy(n.CloseErr))
	}
	m.checkRegistration(s, n)
	m.checkDeviceFiles(s, cards)
	for _, c := range cards {
		s.addOK("card "+c.bus, "%s", c.numaText())
	}
}

func (m Machine) addNoLibrary(s *Section, failed error, wanted, cards bool) {
	verdict, install := Note,
		"install CANN and source its set_env.sh, or name the library with --library or "+acl.LibraryVariable
	if cards {
		verdict = Warning
	}
	if wanted {
		verdict = Problem
	}
	loadErr := (*acl.LoadError)(nil)
	switch {
	case !errors.As(failed, &loadErr):
		s.addRow("library", failed.Error(), verdict, deviceRemedy(failed))
	case verdict == Note:
		s.addRow("library", "none; "+formatAttempts(loadErr.Attempts), verdict, install+"; this is only needed for NPUs")
	default:
		s.addRow("library", "none; "+formatAttempts(loadErr.Attempts), verdict, install)
	}
}

// formatAttempts lists the libraries that could not be used, each with the reason.
func formatAttempts(list []acl.Attempt) string {
	var tried []string
	for _, a := range list {
		reason := strings.TrimPrefix(a.Reason, a.Library+": ") // the loader's reason repeats the library's name
		if len(a.Missing) != 0 {
			reason = "the library lacks " + strings.Join(a.Missing, ", ")
		}
		tried = append(tried, a.Library+": "+reason)
	}
	return "tried " + strings.Join(tried, "; ")
}

func addSignalHandlers(s *Section, signals []int) {
	s.addWarning("signal handlers",
		"the library has installed handlers that do not run on the alternate stack, for signals: "+formatList(signals),
		"run kvferry node in a process of its own, not in the engine: a Go program aborts when such a handler runs on one of its threads")
}

// checkDriver reports the version of the NPU driver, which the driver's installation has recorded in a file.
func (m Machine) checkDriver(s *Section) {
	at := "/usr/local/Ascend"
	if installed := assignedValue(m.readText("etc/ascend_install.info"), "Driver_Install_Path_Param"); installed != "" {
		at = installed
	}
	file := path.Join(at, "driver/version.info")
	if version := assignedValue(m.readText(file), "Version"); version != "" {
		s.addOK("driver", "%s", version)
	} else {
		s.addNote("driver", "unknown: "+file+" gives no version", "install the driver, or mount that file and "+path.Join(at,
			"driver")+" into the container")
	}
}

// assignedValue returns the text after NAME= in a text of such lines.
func assignedValue(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// checkDevice returns the section of a device. The node is the NUMA node of the device's card, or -1 if unknown.
func (m Machine) checkDevice(d Device, node int, copyBytes uint64) Section {
	s := Section{Name: fmt.Sprintf("npu %d", d.ID)}
	if d.Err != nil {
		s.addProblem("access", d.Err.Error(), deviceRemedy(d.Err))
		return s
	}
	s.addOK("memory", "%s, %s of it free", formatSize(d.Total), formatSize(d.Free))
	if d.Physical < 0 {
		s.addNote("physical id", "unknown: the library does not report it", "install a newer CANN: rank tables need the physical id")
	} else {
		s.addOK("physical id", "%d", d.Physical)
		m.checkRoCE(&s, d.Physical)
	}
	if d.SuperPod != nil {
		s.addOK("super pod", "%d, server %d, device %d", d.SuperPod.ID, d.SuperPod.Server, d.SuperPod.Device)
	}
	m.checkPlacement(&s, node)
	for _, c := range d.Copies {
		switch {
		case errors.Is(c.Err, acl.OutOfMemory):
			s.addNote(c.Name, c.Err.Error(), "lower --copy-bytes, or measure before the engine takes the memory")
		case c.Err != nil:
			s.addProblem(c.Name, c.Err.Error(), deviceRemedy(c.Err))
		default:
			s.addSpeed(c.Name, copyBytes, c.PerSecond)
		}
	}
	return s
}

// checkRoCE checks the device's own address, by which other hosts reach the device.
func (m Machine) checkRoCE(s *Section, physical int) {
	if address := m.hccnAddress(physical); address != "" {
		s.addOK("roce address", "%s", address)
		return
	}
	id := strconv.Itoa(physical)
	s.addNote("roce address", "none in /etc/hccn.conf",
		"hccn_tool -i "+id+" -ip -s address A netmask M, and mount /etc/hccn.conf into the container: HCCL needs an address even "+
			"for links inside a host")
}

// hccnAddress returns a device's address in /etc/hccn.conf, or "" if the file has none.
func (m Machine) hccnAddress(physical int) string {
	address, ok := hccn.Address(m.readText("etc/hccn.conf"), physical)
	if !ok {
		return ""
	}
	return address.String()
}

func deviceRemedy(err error) string {
	switch {
	case errors.Is(err, acl.OutOfMemory):
		return "free device memory: npu-smi info lists the processes that use it"
	case errors.Is(err, acl.Config):
		return "check with npu-smi info that the device exists, and that the container and this user have access to it"
	case errors.Is(err, acl.DeviceLost):
		return "reset the device: npu-smi set -t reset -i CARD -c CHIP, and check its health with npu-smi info -t health"
	case errors.Is(err, acl.Timeout):
		return "check whether another process keeps the device busy: npu-smi info -t usages"
	default:
		return "check npu-smi info -t health and CANN's log, in ASCEND_PROCESS_LOG_PATH or ~/ascend/log"
	}
}
