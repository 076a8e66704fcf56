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
	Failed  error // why the other fields are empty: there is no library, or the library refuses
	Info    acl.Info
	Devices []Device
	Left    error // the error of releasing resources
	HCCL    HCCL
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
	Failed   error

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
	Failed    error
}

const lackedRemedy = "install a newer CANN; docs/ascend.md has what is done without each of them"

// checkNPUs checks the library and everything that is common to all devices. The argument wanted is true if the options
// or the configuration require NPUs.
func (m Machine) npus(s *Section, n NPUs, wanted bool) {
	cards := m.cards()
	if n.Failed != nil {
		m.noLibrary(s, n.Failed, wanted, len(cards) != 0)
		m.deviceFiles(s, cards)
		return
	}
	s.ok("library", "%s", n.Info.Library)
	if n.Info.CANN == "" {
		s.note("cann", "unknown: neither the library nor the toolkit says",
			"source CANN's set_env.sh, which sets ASCEND_HOME_PATH")
	} else {
		s.ok("cann", "%s, interface %v", n.Info.CANN, n.Info.ACL)
	}
	m.driver(s)
	if strings.HasPrefix(n.Info.SoC, "Ascend950") {
		s.note("chip", n.Info.SoC,
			"pd_buffer_device: cpu and transfer_channel: auto: the functions of HCCL that nodes need are not known to work on "+
				"this chip")
	} else {
		s.ok("chip", "%s", chip(n.Info.SoC))
	}
	if len(n.Info.Missing) != 0 {
		s.note("missing functions", strings.Join(n.Info.Missing, ", "), lackedRemedy)
	}
	if len(n.Info.Signals) != 0 {
		signalHandlers(s, n.Info.Signals)
	}
	if visible := m.Env("ASCEND_RT_VISIBLE_DEVICES"); visible != "" {
		s.ok("visible devices", "ASCEND_RT_VISIBLE_DEVICES=%s", visible)
	}
	if len(n.Devices) == 0 {
		verdict := Note
		if wanted {
			verdict = Problem
		}
		s.add("devices", "none", verdict,
			"see npu-smi info, the devices given to the container, and ASCEND_RT_VISIBLE_DEVICES")
	} else {
		s.ok("devices", "%d", len(n.Devices))
	}
	if n.Left != nil {
		s.warn("closing", n.Left.Error(), deviceRemedy(n.Left))
	}
	m.registration(s, n)
	m.deviceFiles(s, cards)
	for _, c := range cards {
		s.ok("card "+c.bus, "%s", c.placement())
	}
}

func (m Machine) noLibrary(s *Section, failed error, wanted, cards bool) {
	verdict, install := Note,
		"install CANN and source its set_env.sh, or name the library with --library or "+acl.LibraryVariable
	if cards {
		verdict = Warning
	}
	if wanted {
		verdict = Problem
	}
	missed := (*acl.LoadError)(nil)
	switch {
	case !errors.As(failed, &missed):
		s.add("library", failed.Error(), verdict, deviceRemedy(failed))
	case verdict == Note:
		s.add("library", "none; "+attempts(missed.Attempts), verdict, install+"; without NPUs nothing is missing")
	default:
		s.add("library", "none; "+attempts(missed.Attempts), verdict, install)
	}
}

// attempts lists the libraries that could not be used, each with the reason.
func attempts(list []acl.Attempt) string {
	var tried []string
	for _, a := range list {
		reason := strings.TrimPrefix(a.Reason, a.Library+": ") // the loader's reason repeats the library's name
		if len(a.Missing) != 0 {
			reason = "it has no " + strings.Join(a.Missing, ", ")
		}
		tried = append(tried, a.Library+": "+reason)
	}
	return "tried " + strings.Join(tried, "; ")
}

func signalHandlers(s *Section, signals []int) {
	s.warn("signal handlers", "loading has installed some that do not run on the alternate stack: "+formatList(signals),
		"run kvferry node beside the engine, not in it: a Go program aborts when such a handler runs on one of its threads")
}

// checkDriver reports the version of the NPU driver, which the driver's installation has recorded in a file.
func (m Machine) driver(s *Section) {
	at := "/usr/local/Ascend"
	if installed := assigned(m.text("etc/ascend_install.info"), "Driver_Install_Path_Param"); installed != "" {
		at = installed
	}
	file := path.Join(at, "driver/version.info")
	if version := assigned(m.text(file), "Version"); version != "" {
		s.ok("driver", "%s", version)
	} else {
		s.note("driver", "unknown: "+file+" does not say", "install the driver, or mount that file and "+path.Join(at,
			"driver")+" into the container")
	}
}

// assigned returns the text after NAME= in a text of such lines.
func assigned(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// checkDevice returns the section of a device. The node is the NUMA node of the device's card, or -1 if unknown.
func (m Machine) device(d Device, node int, copyBytes uint64) Section {
	s := Section{Name: fmt.Sprintf("npu %d", d.ID)}
	if d.Failed != nil {
		s.problem("use", d.Failed.Error(), deviceRemedy(d.Failed))
		return s
	}
	s.ok("memory", "%s, %s of it free", size(d.Total), size(d.Free))
	if d.Physical < 0 {
		s.note("physical id", "unknown: the library does not say", "install a newer CANN: rank tables need it")
	} else {
		s.ok("physical id", "%d", d.Physical)
		m.roce(&s, d.Physical)
	}
	if d.SuperPod != nil {
		s.ok("super pod", "%d, server %d, device %d", d.SuperPod.ID, d.SuperPod.Server, d.SuperPod.Device)
	}
	m.placement(&s, node)
	for _, c := range d.Copies {
		switch {
		case errors.Is(c.Failed, acl.OutOfMemory):
			s.note(c.Name, c.Failed.Error(), "lower --copy-bytes, or measure before the engine takes the memory")
		case c.Failed != nil:
			s.problem(c.Name, c.Failed.Error(), deviceRemedy(c.Failed))
		default:
			s.speed(c.Name, copyBytes, c.PerSecond)
		}
	}
	return s
}

// roce checks the device's own address, by which other hosts reach the device.
func (m Machine) roce(s *Section, physical int) {
	if address := m.hccn(physical); address != "" {
		s.ok("roce address", "%s", address)
		return
	}
	id := strconv.Itoa(physical)
	s.note("roce address", "none in /etc/hccn.conf",
		"hccn_tool -i "+id+" -ip -s address A netmask M, and mount /etc/hccn.conf into the container: HCCL wants one even "+
			"for links inside a host")
}

// hccn returns a device's address in /etc/hccn.conf, or "" if the file has none.
func (m Machine) hccn(physical int) string {
	address, ok := hccn.Address(m.text("etc/hccn.conf"), physical)
	if !ok {
		return ""
	}
	return address.String()
}

func deviceRemedy(err error) string {
	switch {
	case errors.Is(err, acl.OutOfMemory):
		return "free device memory: npu-smi info lists the processes that have it"
	case errors.Is(err, acl.Config):
		return "see npu-smi info for the devices, and which of them the container and this user were given"
	case errors.Is(err, acl.DeviceLost):
		return "reset the device: npu-smi set -t reset -i CARD -c CHIP, and see its health with npu-smi info -t health"
	case errors.Is(err, acl.Timeout):
		return "see whether another process keeps the device busy: npu-smi info -t usages"
	default:
		return "see npu-smi info -t health and CANN's own log, in ASCEND_PROCESS_LOG_PATH or ~/ascend/log"
	}
}
