package doctor

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/kvferry/kvferry/runtime/config"
	controls "github.com/kvferry/kvferry/runtime/control"
)

// A Target is the configuration that is to run on the machine, or the error with which the configuration was refused.
type Target struct {
	Config *config.Config
	Err    error // from config.Parse
	// NoLibZMQ is the reason that this build has no control transport over libzmq, or nil if the build has one.
	NoLibZMQ error
}

// needsNPUs reports whether the configuration cannot run without NPUs.
func (w Target) needsNPUs() bool { return w.Config != nil && w.Config.NeedsNPU() }

func (m Machine) checkConfig(s *Section, w Target, n NPUs) {
	if w.Err != nil {
		refused := (*config.Error)(nil)
		if !errors.As(w.Err, &refused) {
			s.addProblem("file", w.Err.Error(), "give a file in YAML with LMCache's keys")
			return
		}
		for _, p := range refused.Problems {
			s.addProblem(locateProblem(p), problemValue(p), p.Remedy)
		}
		return
	}
	c := w.Config
	if c == nil {
		return
	}
	s.addOK("file", "%s: %v, %v, transfer_channel %v", c.Name, c.Role, c.Pull, c.Channel)
	for _, p := range c.Notes {
		s.addNote(locateProblem(p), problemValue(p), p.Remedy)
	}
	checkControlTransport(s, c, w.NoLibZMQ)
	m.checkPools(s, c)
	if c.NeedsNPU() && n.Err == nil { // the library's section reports a missing library
		checkDevicePools(s, c, n)
		if c.Channel == config.ChannelHCCL {
			m.checkDeviceAddresses(s, c, n)
		}
	}
	m.checkPorts(s, c)
	if dir := c.Data.SHMDir; dir != "" && (c.Channel == config.ChannelAuto || c.Channel == config.ChannelSHM) {
		if err := m.Writable(dir); err != nil {
			s.addProblem("data.shm_dir", dir+": "+err.Error(),
				"create the folder and give this user write permission, or leave the key out")
		} else {
			s.addOK("data.shm_dir", "files can be created in %s", dir)
		}
	}
}

// checkControlTransport checks whether the build has the configured transport for control messages, and reports the
// transport's limitations.
func checkControlTransport(s *Section, c *config.Config, noLibZMQ error) {
	const row = "control.transport"
	if c.Control != config.ControlLibZMQ {
		return
	}
	if noLibZMQ != nil {
		remedy := "set control.transport: zmq"
		if e := (*controls.Error)(nil); errors.As(noLibZMQ, &e) {
			remedy = e.Remedy
		}
		s.addProblem(row, "libzmq, which this build does not have", remedy)
		return
	}
	s.addNote(row, "libzmq, which limits neither the connections of peers nor the memory of a message with many frames",
		"allow only known hosts to reach the control ports, or set control.transport: zmq")
}

// locateProblem returns the shortest text that locates a problem in the configuration.
func locateProblem(p config.Problem) string {
	at := p.Field
	if at == "" {
		at = p.File
	}
	if p.Line > 0 {
		at += fmt.Sprintf(" (line %d)", p.Line)
	}
	return at
}

func problemValue(p config.Problem) string {
	if p.Value == "" {
		return p.Code.String()
	}
	return strconv.Quote(p.Value)
}
