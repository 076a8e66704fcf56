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
	Failed error // why the other fields are empty: there is no library
	Info   libnixl.Info
	Agent  time.Duration // time to create an agent, not counting the first agent
	Write  Speed         // a write from one agent to another, every byte compared
}

// nixlRelease is the release with which kvferry was tested.
const nixlRelease = "1.5.1"

// nixlBytesMax is the maximum size of the measured write.
const nixlBytesMax = 64 << 20

// nixl checks the library. The configuration may be nil.
func (m Machine) nixl(s *Section, n NIXL, cfg *config.Config, bytes uint64) {
	wanted := cfg != nil && cfg.Channel == config.ChannelNIXL
	if n.Failed != nil {
		verdict, unless := Note, "; without transfer_channel: nixl nothing is missing"
		if wanted {
			verdict, unless = Problem, ""
		}
		if missed := (*libnixl.LoadError)(nil); errors.As(n.Failed, &missed) {
			s.add("library", "none; "+attempts(missed.Attempts), verdict, "install NIXL (PyPI's nixl-cu12 "+nixlRelease+
				" has it; it needs libibverbs1 and librdmacm1), and name its libnixl_capi.so in nixl.library or "+
				libnixl.LibraryVariable+unless)
		} else {
			s.add("library", n.Failed.Error(), verdict, "correct what it names"+unless)
		}
		return
	}
	s.ok("library", "%s", n.Info.Library)
	switch release := m.release(n.Info.Library); release {
	case nixlRelease:
		s.ok("release", "%s", release)
	case "":
		s.note("release", "unknown: the library does not say, and no wheel's dist-info is beside it",
			"nothing to do: "+nixlRelease+" is what kvferry was tried with")
	default:
		s.note("release", release, "install "+nixlRelease+", which kvferry was tried with, or see that the write below is ok")
	}
	if len(n.Info.Signals) != 0 {
		signalHandlers(s, n.Info.Signals)
	}
	if said := m.Env("UCX_TLS"); said != "" && wanted && cfg.NIXL.Transports != "" {
		s.problem("nixl.transports", fmt.Sprintf("%s, and UCX_TLS=%s goes before it", cfg.NIXL.Transports, said),
			"unset one of them")
	}
	if n.Write.Failed != nil {
		verdict := Warning
		if wanted {
			verdict = Problem
		}
		s.add(n.Write.Name, n.Write.Failed.Error(), verdict,
			"see libnixl's log on standard error (NIXL_LOG_LEVEL=DEBUG, UCX_LOG_LEVEL=debug), UCX_TLS and UCX_NET_DEVICES")
		return
	}
	s.ok("agent", "made in %v", n.Agent.Round(time.Millisecond))
	s.speed(n.Write.Name, min(bytes, nixlBytesMax), n.Write.PerSecond)
}

// wheelRelease returns the release of the wheel with which a library was installed, or "" if there is no wheel. The
// library does not report its release.
func (m Machine) release(library string) string {
	for _, name := range m.matches(strings.TrimPrefix(path.Join(path.Dir(path.Dir(library)), "nixl*.dist-info"), "/")) {
		if _, release, is := strings.Cut(strings.TrimSuffix(path.Base(name), ".dist-info"), "-"); is {
			return release
		}
	}
	return ""
}
