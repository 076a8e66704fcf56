package demo

import (
	"fmt"
	"slices"
	"strings"
)

// A Mode is a way to move chunks from prefill to decode.
type Mode string

// The modes.
const (
	Push Mode = "push" // the prefill node writes the chunks
	// the prefill node leases its pages to the decode nodes, which read the pages as soon as they are offered
	Pull             Mode = "pull"
	PullDelay        Mode = "pull-delay"         // the decode nodes read the pages when their engines fetch
	PullDelayOffload Mode = "pull-delay+offload" // like pull-delay, from host memory of a prefill node on an NPU
	Layerwise        Mode = "layerwise"          // the prefill node writes each layer when it is computed
)

// pushPullModes lists the modes of "all", in the order in which they are played.
var pushPullModes = []Mode{Push, Pull, PullDelay, PullDelayOffload, Layerwise}

// ModeNames returns the names that --mode accepts, as text for messages.
func ModeNames() string {
	names := make([]string, len(pushPullModes))
	for i, m := range pushPullModes {
		names[i] = string(m)
	}
	for _, m := range sharingModes {
		names = append(names, string(m))
	}
	names = append(names, string(PushReg))
	return strings.Join(names, ", ") + ", all (all push and pull modes), or p2p (all sharing modes)"
}

// IsSharing reports whether nodes share their caches in the modes.
func IsSharing(modes []Mode) bool { return len(modes) > 0 && slices.Contains(sharingModes, modes[0]) }

// ParseModes returns the mode with the given name, all push and pull modes for "all", or all sharing modes for "p2p".
// It reports in share whether the nodes share their caches in these modes, and fails for an unknown name.
func ParseModes(name string) (found []Mode, share bool, err error) {
	switch m := Mode(name); {
	case name == "all":
		return pushPullModes, false, nil
	case name == "p2p":
		return sharingModes, true, nil
	case slices.Contains(pushPullModes, m):
		return []Mode{m}, false, nil
	case slices.Contains(sharingModes, m):
		return []Mode{m}, true, nil
	}
	return nil, false, fmt.Errorf("--mode is %q; use %s", name, ModeNames())
}

// isDelayed reports whether decode nodes defer offers until their engines fetch.
func (m Mode) isDelayed() bool { return m == PullDelay || m == PullDelayOffload }

// offerSeconds is the lifetime of the demo's offers in seconds, unless they are renewed. If a decode node is killed,
// the pages of its offers stay leased for this time.
const offerSeconds = 3

// stagingPages is the number of pages into which a decode node's fetches read, in batches of half as many pages. The
// node's pool has twice as many pages, so that the demo would notice a node that exceeds the limit.
const stagingPages = 16

// prefillLines returns the lines that a mode adds to the configuration of a prefill node.
func (m Mode) prefillLines(donePort, renewPort uint16, s shape) string {
	var b strings.Builder
	if m == Layerwise {
		return "use_layerwise: true\n"
	}
	if m != Push {
		fmt.Fprintf(&b, "pd_pull_mode: true\npd_peer_host: %s\npd_pull_done_port: %d\npd_pull_pending_ttl: %d\n", host,
			donePort, offerSeconds)
	}
	if m.isDelayed() {
		fmt.Fprintf(&b, "pd_peer_init_port: %d\n", renewPort)
	}
	if m == PullDelayOffload {
		fmt.Fprintf(&b, "pd_use_cpu_offload: true\npd_cpu_buffer_size: %d\n", s.prefillPages*s.pageBytes())
	}
	return b.String()
}

// decodeLines returns the lines that a mode adds to the configuration of a decode node.
func (m Mode) decodeLines() string {
	switch {
	case m == Push:
		return ""
	case m == Layerwise:
		return "use_layerwise: true\n"
	case m.isDelayed():
		return "pd_pull_mode: true\npd_delay_pull: true\n"
	}
	return "pd_pull_mode: true\n"
}

// kvferryLines returns the lines that a mode adds to a decode node's configuration below extra_config.kvferry.
func (m Mode) kvferryLines(s shape) string {
	if m.isDelayed() {
		return fmt.Sprintf("    pull: {staging_bytes: %d}\n", stagingPages*s.pageBytes())
	}
	return ""
}

// decodePages returns the size of a decode node's pool in pages.
func (m Mode) decodePages(s shape) int {
	if m.isDelayed() {
		return 2 * stagingPages
	}
	return s.decodePages
}

// newAdmissions returns for each decode node the admission that limits its chunks in flight. The limit is the size of
// the node's pool. In the delayed and layerwise modes, where chunks stay leased until they are fetched or computed, all
// decode nodes share one limit: the number of chunks that the prefill node can lease to peers.
func (m Mode) newAdmissions(s shape) (rooms [decodeNodes]*admission) {
	shared := newAdmission(m.chunkLimit(s))
	for i := range rooms {
		if rooms[i] = shared; !m.isDelayed() && m != Layerwise {
			rooms[i] = newAdmission(m.chunkLimit(s))
		}
	}
	return rooms
}

// chunkLimit returns the number of chunks that an admission of newAdmissions admits.
func (m Mode) chunkLimit(s shape) int {
	if m.isDelayed() || m == Layerwise {
		return s.prefillPages * 3 / 4
	}
	return s.decodePages
}

// maxChunks returns the maximum number of chunks of a request.
func (o *Options) maxChunks() int {
	if o.Ring {
		return o.Mode.ringChunkLimit(o.shape)
	}
	return o.Mode.chunkLimit(o.shape)
}
