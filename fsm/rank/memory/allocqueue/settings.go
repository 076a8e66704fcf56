package allocqueue

import "github.com/kvferry/kvferry/fsm/rank/kernel"

// Settings are the part of a rank's configuration that is about who waits for pages. Zero means the default.
type Settings struct {
	WaitersMax   uint32 // default 1024 allocation requests waiting, of all peers
	WaitingBytes uint64 // default 64 MiB that those have, of all peers; one has no more than it leaves
	BypassMax    uint32 // default 16: how often a waiting head is passed before pages are kept together for it
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	kernel.Default(&s.WaitersMax, 1024)
	kernel.Default(&s.WaitingBytes, 64<<20)
	kernel.Default(&s.BypassMax, 16)
}

// Check says what cannot work.
func (s *Settings) Check() error {
	return kernel.Countable(kernel.Count{Name: "WaitersMax", Value: s.WaitersMax})
}

// Need is that of who waits: each has a deadline.
func (s *Settings) Need() kernel.Need { return kernel.Need{Deadlines: int(s.WaitersMax)} }
