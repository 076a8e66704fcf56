package demo

import (
	"fmt"
	"slices"
	"strings"
)

// A Mode is a way for chunks to go from prefill to decode.
type Mode string

// The modes.
const (
	Push Mode = "push" // the prefill writes them
	// the prefill lends its pages, and the decodes read them as they are offered
	Pull             Mode = "pull"
	PullDelay        Mode = "pull-delay"         // the decodes read them when their engines fetch
	PullDelayOffload Mode = "pull-delay+offload" // so too, from the host memory of a prefill on an NPU
	Layerwise        Mode = "layerwise"          // the prefill writes each layer when it is computed
)

// modes are all of them, in the order in which they are played.
var modes = []Mode{Push, Pull, PullDelay, PullDelayOffload, Layerwise}

// ModeNames lists them for people.
func ModeNames() string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	for _, m := range sharedModes {
		names = append(names, string(m))
	}
	names = append(names, string(PushReg))
	return strings.Join(names, ", ") + ", all that push or pull, or p2p for those that share"
}

// ParseModes reads the name of one mode, or all; or p2p, for all in which nodes share, and says whether they do.
func ParseModes(name string) (found []Mode, share bool, err error) {
	switch m := Mode(name); {
	case name == "all":
		return modes, false, nil
	case name == "p2p":
		return sharedModes, true, nil
	case slices.Contains(modes, m):
		return []Mode{m}, false, nil
	case slices.Contains(sharedModes, m):
		return []Mode{m}, true, nil
	}
	return nil, false, fmt.Errorf("--mode is %q; use %s", name, ModeNames())
}

// delays says that decodes keep offers until their engines fetch.
func (m Mode) delays() bool { return m == PullDelay || m == PullDelayOffload }

// offersStand is how long the demo's offers stand, in seconds, unless they are renewed: so long the pages of a
// decode that was killed over them stay lent.
const offersStand = 3

// stagingPages are what a decode's fetches read into: batches of half as many. Its pool has twice that, so that it
// could hold more if it did not keep to it.
const stagingPages = 16

// prefill and decode are the lines that a mode adds to the configuration of each side, and own those below
// extra_config.kvferry.
func (m Mode) prefill(donePort, renewPort uint16, s shape) string {
	var b strings.Builder
	if m == Layerwise {
		return "use_layerwise: true\n"
	}
	if m != Push {
		fmt.Fprintf(&b, "pd_pull_mode: true\npd_peer_host: %s\npd_pull_done_port: %d\npd_pull_pending_ttl: %d\n", host,
			donePort, offersStand)
	}
	if m.delays() {
		fmt.Fprintf(&b, "pd_peer_init_port: %d\n", renewPort)
	}
	if m == PullDelayOffload {
		fmt.Fprintf(&b, "pd_use_cpu_offload: true\npd_cpu_buffer_size: %d\n", s.prefillPages*s.pageBytes())
	}
	return b.String()
}

func (m Mode) decode() string {
	switch {
	case m == Push:
		return ""
	case m == Layerwise:
		return "use_layerwise: true\n"
	case m.delays():
		return "pd_pull_mode: true\npd_delay_pull: true\n"
	}
	return "pd_pull_mode: true\n"
}

func (m Mode) own(s shape) string {
	if m.delays() {
		return fmt.Sprintf("    pull: {staging_bytes: %d}\n", stagingPages*s.pageBytes())
	}
	return ""
}

// decodePages is the size of a decode's pool.
func (m Mode) decodePages(s shape) int {
	if m.delays() {
		return 2 * stagingPages
	}
	return s.decodePages
}

// rooms are how many chunks may be on their way to each decode: what its pool holds; or, where chunks stay lent until
// they are fetched, or until they are computed, what the prefill can lend to all of them together.
func (m Mode) rooms(s shape) (rooms [decoders]*admission) {
	all := newAdmission(m.room(s))
	for i := range rooms {
		if rooms[i] = all; !m.delays() && m != Layerwise {
			rooms[i] = newAdmission(m.room(s))
		}
	}
	return rooms
}

// room is how many chunks are within one such bound.
func (m Mode) room(s shape) int {
	if m.delays() || m == Layerwise {
		return s.prefillPages * 3 / 4
	}
	return s.decodePages
}

// most is the most chunks that a request can have.
func (o *Options) most() int {
	if o.Ring {
		return o.Mode.ringRoom(o.shape)
	}
	return o.Mode.room(o.shape)
}
