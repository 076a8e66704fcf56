package doctor

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/libnixl"
)

// NIXL is the report of libnixl, the library that moves pages between processes over UCX.
type NIXL struct {
	Err   error // why the other fields are empty: there is no library
	Info  libnixl.Info
	Agent time.Duration // time to create an agent, not counting the first agent
	Write Speed         // a write from one agent to another, every byte compared
}

// nixlTestedRelease is the release with which kvferry was tested.
const nixlTestedRelease = "1.5.1"

// nixlBytesMax is the maximum size of the measured write.
const nixlBytesMax = 64 << 20

// checkNIXL checks the library. The configuration may be nil.
func (m Machine) checkNIXL(s *Section, n NIXL, cfg *config.Config, bytes uint64) {
	wanted := cfg != nil && cfg.Channel == config.ChannelNIXL
	if n.Err != nil {
		verdict, suffix := Note, "; this is only needed for transfer_channel: nixl"
		if wanted {
			verdict, suffix = Problem, ""
		}
		if loadErr := (*libnixl.LoadError)(nil); errors.As(n.Err, &loadErr) {
			s.addRow("library", "none; "+formatAttempts(loadErr.Attempts), verdict, "install NIXL (the PyPI package nixl-cu12 "+nixlTestedRelease+
				" has it; it needs libibverbs1 and librdmacm1), and set the path of its libnixl_capi.so in nixl.library or "+
				libnixl.LibraryVariable+suffix)
		} else {
			s.addRow("library", n.Err.Error(), verdict, "correct the setting that the error names"+suffix)
		}
		return
	}
	s.addOK("library", "%s", n.Info.Library)
	switch release := m.wheelRelease(n.Info.Library); release {
	case nixlTestedRelease:
		s.addOK("release", "%s", release)
	case "":
		s.addNote("release", "unknown: the library does not report it, and there is no dist-info of a wheel",
			"check that the release is "+nixlTestedRelease+", with which kvferry was tested")
	default:
		s.addNote("release", release, "install "+nixlTestedRelease+", with which kvferry was tested, or check that the write below is ok")
	}
	if len(n.Info.Signals) != 0 {
		addSignalHandlers(s, n.Info.Signals)
	}
	if transports := m.Env("UCX_TLS"); transports != "" && wanted && cfg.NIXL.Transports != "" {
		s.addProblem("nixl.transports", fmt.Sprintf("%s, but UCX_TLS=%s takes precedence", cfg.NIXL.Transports, transports),
			"unset one of them")
	}
	if n.Write.Err != nil {
		verdict := Warning
		if wanted {
			verdict = Problem
		}
		s.addRow(n.Write.Name, n.Write.Err.Error(), verdict,
			"check the variables UCX_TLS and UCX_NET_DEVICES, and libnixl's log on standard error (NIXL_LOG_LEVEL=DEBUG, UCX_LOG_LEVEL=debug)")
		return
	}
	s.addOK("agent", "created in %v", n.Agent.Round(time.Millisecond))
	s.addSpeed(n.Write.Name, min(bytes, nixlBytesMax), n.Write.PerSecond)
}

// wheelRelease returns the release of the wheel with which a library was installed, or "" if there is no wheel. The
// library does not report its release.
func (m Machine) wheelRelease(library string) string {
	for _, name := range m.globFiles(strings.TrimPrefix(path.Join(path.Dir(path.Dir(library)), "nixl*.dist-info"), "/")) {
		if _, release, is := strings.Cut(strings.TrimSuffix(path.Base(name), ".dist-info"), "-"); is {
			return release
		}
	}
	return ""
}
