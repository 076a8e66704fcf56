package registrar

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// A Directory is where one listens.
type Directory struct {
	Asks  effects.Addr // questions: LMCache's controller_reply_url
	Feed  effects.Addr // what nobody answers: its controller_pull_url
	Plain bool         // a controller of LMCache's: it knows no fields of ours, and counts gaps without asking for more
}

// A Worker is who is made known, and who asks.
type Worker struct {
	Instance    string
	Rank        uint32
	IP          string // with Port, where a controller's requests would be taken
	Port        uint16
	URL         string // host:port where peers begin; empty: none can reach it, and nobody is told of it
	Location    string // what the store is called: LMCache's name of the backend
	Incarnation effects.Incarnation
}

// Config is what a registrar and its lookups go by. [Default] has values for each field but the first four.
type Config struct {
	Owner       kernel.Owner // by whom completions and deadlines of the Registrar are found
	Asker       kernel.Owner // likewise of Lookups
	Worker      Worker
	Directories []Directory
	Seed        uint64 // a secret: of names of syncs, delays, and which directory is asked first
	Wire        protocol.Limits

	Patience               effects.Duration // with an answer
	BackoffMin, BackoffMax effects.Duration // before a connection that failed is opened again
	Beat                   effects.Duration // between heartbeats
	BeatsLost              uint32           // without an answer, after which it registers anew
	Report                 effects.Duration // how long operations wait for more of them
	Operations             int              // in one report
	Leave                  effects.Duration // for deregistering

	SyncEvery  effects.Duration // from the begin of one full sync to the next, doubled while they fail
	SyncMost   effects.Duration // and never more than that
	SyncPause  effects.Duration // between two batches
	SyncBatch  int              // slots of the store that one batch tells of
	SyncPoll   effects.Duration // from a sync's end to the question how far it is, and from one to the next
	SyncPolls  uint32           // then it is begun anew
	SyncMissed int              // batches that are told again at a time

	Questions int    // lookups at a time
	Window    uint16 // of these at one directory without an answer; one of LMCache's gets one
	Prefix    int    // chunks in one
	Holders   int    // in an answer
	Tries     int    // directories that are asked, one after the other
	Asking    effects.Duration
	Keep      effects.Duration // how long an answer that names holders is given again; 0: never
	Kept      int              // answers
}

// Default has what LMCache's workers have, where they have it.
func Default() Config {
	return Config{
		Wire:     protocol.DefaultLimits(),
		Patience: 5 * effects.Second, BackoffMin: 100 * effects.Millisecond, BackoffMax: 10 * effects.Second,
		Beat: 10 * effects.Second, BeatsLost: 3, Report: 10 * effects.Millisecond, Operations: 50, Leave: 5 * effects.Second,
		SyncEvery: 5 * effects.Second, SyncMost: 300 * effects.Second, SyncPause: 5 * effects.Millisecond, SyncBatch: 2000,
		SyncPoll: 5 * effects.Second, SyncPolls: 12, SyncMissed: 256,
		Questions: 256, Window: 16, Prefix: 1000, Holders: 8, Tries: 3, Asking: 500 * effects.Millisecond,
		Keep: 5 * effects.Second, Kept: 1024,
	}
}

// DirectoriesMost is how many directories can be listed.
const DirectoriesMost = 64

// Check says what is wrong with it.
func (c *Config) Check() error {
	w := &c.Worker
	switch {
	case w.Instance == "" || len(w.Instance) > c.Wire.StringBytes:
		return fmt.Errorf("registrar: instance has %d bytes: give 1 to %d", len(w.Instance), c.Wire.StringBytes)
	case w.Rank > 1<<16-1:
		return fmt.Errorf("registrar: rank is %d: give at most 65535", w.Rank)
	case w.Location == "":
		return fmt.Errorf("registrar: location is empty: give LMCache's name of the backend, LocalCPUBackend")
	case len(c.Directories) == 0 || len(c.Directories) > DirectoriesMost:
		return fmt.Errorf("registrar: directories are %d: give 1 to %d", len(c.Directories), DirectoriesMost)
	}
	if w.URL != "" {
		if _, err := protocol.ParseEndpoint(w.URL); err != nil {
			return fmt.Errorf("registrar: url: %w", err)
		}
	}
	for i, d := range c.Directories {
		if d.Asks.Host == "" || d.Asks.Port == 0 || d.Feed.Host == "" || d.Feed.Port == 0 {
			return fmt.Errorf("registrar: directory %d listens at %v and %v: give host and port of both", i, d.Asks, d.Feed)
		}
	}
	if err := c.checkCounts(); err != nil {
		return err
	}
	return c.checkTimes()
}

func (c *Config) checkCounts() error {
	for _, b := range [...]struct {
		field     string
		value     int
		from, max int
	}{
		{"heartbeats lost", int(c.BeatsLost), 1, 1 << 20},
		{"operations of a report", c.Operations, 1, 4096},
		{"slots of a batch", c.SyncBatch, 1, 4096},
		{"polls of a sync", int(c.SyncPolls), 1, 1 << 20},
		{"batches told again", c.SyncMissed, 1, 1 << 16},
		{"questions", c.Questions, 1, 1 << 16},
		{"window", int(c.Window), 1, 1 << 10},
		{"hashes of a prefix", c.Prefix, 1, c.Wire.HashCount},
		{"holders", c.Holders, 1, c.Wire.HolderCount},
		{"tries", c.Tries, 1, DirectoriesMost},
		{"answers kept", c.Kept, 0, 1 << 20},
	} {
		if b.value < b.from || b.value > b.max {
			return fmt.Errorf("registrar: %s: %d is not within %d and %d", b.field, b.value, b.from, b.max)
		}
	}
	return nil
}

func (c *Config) checkTimes() error {
	for _, b := range [...]struct {
		field string
		value effects.Duration
	}{
		{"patience", c.Patience},
		{"the least backoff", c.BackoffMin},
		{"time between heartbeats", c.Beat},
		{"time to deregister", c.Leave},
		{"time between syncs", c.SyncEvery},
		{"time between polls", c.SyncPoll},
		{"patience of a lookup", c.Asking},
	} {
		if b.value <= 0 {
			return fmt.Errorf("registrar: %s is %v: give more than 0", b.field, b.value)
		}
	}
	switch {
	case c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("registrar: the most backoff is %v: give at least the least, %v", c.BackoffMax, c.BackoffMin)
	case c.SyncMost < c.SyncEvery:
		return fmt.Errorf("registrar: the most time between syncs is %v: give at least the least, %v", c.SyncMost,
			c.SyncEvery)
	case c.Report < 0 || c.SyncPause < 0 || c.Keep < 0:
		return fmt.Errorf("registrar: times are %v, %v and %v: give 0 or more", c.Report, c.SyncPause, c.Keep)
	}
	return nil
}

// Need is what the registrar may have outstanding at a time, and Asks what lookups may.
func (c *Config) Need() kernel.Need {
	n := len(c.Directories)
	return kernel.Need{Deadlines: n, Limits: effects.Limits{Sends: lines * n}}
}

// Asks is what lookups may have outstanding at a time.
func (c *Config) Asks() kernel.Need {
	n := len(c.Directories)
	return kernel.Need{Deadlines: n + c.Questions, Limits: effects.Limits{Sends: n * int(max(c.Window, 1))}}
}

// Conns is how many connections are open at a time, of both.
func (c *Config) Conns() int { return (lines + 1) * len(c.Directories) }

// Longest is how long a lookup lasts at the most.
func (c *Config) Longest() effects.Duration {
	return effects.Duration(min(c.Tries, len(c.Directories))) * c.Asking
}
