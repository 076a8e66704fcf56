package doctor

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/kvferry/kvferry/runtime/config"
	controls "github.com/kvferry/kvferry/runtime/control"
)

// A Target is the configuration that is to run on the machine, or the error with which the configuration was refused.
type Wants struct {
	Config  *config.Config
	Refused error // from config.Parse
	// NoLibZMQ is the reason that this build has no control transport over libzmq, or nil if the build has one.
	NoLibZMQ error
}

// needsNPUs reports whether the configuration cannot run without NPUs.
func (w Wants) npus() bool { return w.Config != nil && w.Config.NeedsNPU() }

func (m Machine) configuration(s *Section, w Wants, n NPUs) {
	if w.Refused != nil {
		refused := (*config.Error)(nil)
		if !errors.As(w.Refused, &refused) {
			s.problem("file", w.Refused.Error(), "give a file in YAML with LMCache's keys")
			return
		}
		for _, p := range refused.Problems {
			s.problem(place(p), found(p), p.Remedy)
		}
		return
	}
	c := w.Config
	if c == nil {
		return
	}
	s.ok("file", "%s: %v, %v, transfer_channel %v", c.Name, c.Role, c.Pull, c.Channel)
	for _, p := range c.Notes {
		s.note(place(p), found(p), p.Remedy)
	}
	controlTransport(s, c, w.NoLibZMQ)
	m.pools(s, c)
	if c.NeedsNPU() && n.Failed == nil { // the library's section reports a missing library
		devices(s, c, n)
		if c.Channel == config.ChannelHCCL {
			m.deviceAddresses(s, c, n)
		}
	}
	m.ports(s, c)
	if dir := c.Data.SHMDir; dir != "" && (c.Channel == config.ChannelAuto || c.Channel == config.ChannelSHM) {
		if err := m.Writable(dir); err != nil {
			s.problem("data.shm_dir", dir+": "+err.Error(),
				"make the folder and let this user write there, or leave the key out")
		} else {
			s.ok("data.shm_dir", "%s can be written", dir)
		}
	}
}

// controlTransport checks whether the build has the configured transport for control messages, and reports the
// transport's limitations.
func controlTransport(s *Section, c *config.Config, noLibZMQ error) {
	const row = "control.transport"
	if c.Control != config.ControlLibZMQ {
		return
	}
	if noLibZMQ != nil {
		remedy := "set control.transport: zmq"
		if e := (*controls.Error)(nil); errors.As(noLibZMQ, &e) {
			remedy = e.Remedy
		}
		s.problem(row, "libzmq, which this build does not have", remedy)
		return
	}
	s.note(row, "libzmq, which bounds neither the connections of peers nor the memory of a message of many frames",
		"keep unknown hosts away from the control ports, or set control.transport: zmq")
}

// place returns the shortest text that locates a problem in the configuration.
func place(p config.Problem) string {
	at := p.Field
	if at == "" {
		at = p.File
	}
	if p.Line > 0 {
		at += fmt.Sprintf(" (line %d)", p.Line)
	}
	return at
}

func found(p config.Problem) string {
	if p.Value == "" {
		return p.Code.String()
	}
	return strconv.Quote(p.Value)
}
