package directory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
)

// Config holds the limits and times of a directory. [Default] sets every field except Seed.
type Config struct {
	Seed uint64 // secret from which the keys that hide hashes are derived

	Instances int
	Workers   int // workers of all instances together
	OfOne     int // workers of an instance
	OfSource  int // workers that report on a connection
	Locations int // locations of a worker
	// Holders limits the holders of all workers together, including holders that a sync or a fade is filling and
	// holders that are not swept away yet. At most index.HoldersMost.
	Holders int

	// Chunks limits the chunks of all locations together: a chunk at two locations counts twice.
	Chunks  int
	OfChunk int // locations, of one rank, that are recorded for one chunk
	Text    int // bytes of a name, an address or a sync id

	Syncs   int // full syncs in progress at a time
	Batches int // batches of a sync
	Hashes  int // hashes in a batch of a sync, or operations in a report
	Prefix  int // hashes in a lookup
	Peers   int // peers in an answer

	// Silence is the time without any fact from a worker after which the worker is dropped; 0: never.
	Silence effects.Duration
	// OnlyBeats applies Silence only to workers that send heartbeats. Other workers may have nothing to report until
	// they exit.
	OnlyBeats bool
	// Parted is the time after which a worker is dropped that has no connection and reports nothing; 0: never.
	Parted effects.Duration
	// Yield is the time without facts from a worker after which the worker may be followed by another way: for
	// example, facts about the worker that another directory reports are then accepted.
	Yield effects.Duration
	// Patience is the time after which a sync without progress, or a sync slot that its worker does not use, is given
	// up.
	Patience effects.Duration
	// Fade is the time after which records from before a gap in the operations are dropped; 0: never.
	Fade effects.Duration

	Sweep int // rows of the index that a step examines while sweeping
	// Ends limits how many workers, syncs and fades, each counted separately, a step ends because their time is over.
	Ends int
}

// Default returns a configuration for a fleet of a thousand workers. A full directory takes at most 300 MB.
func Default() Config {
	return Config{
		Instances: 1024, Workers: 4096, OfOne: 256, OfSource: 64, Locations: 8, Holders: 16384,
		Chunks: 10_000_000, OfChunk: 256, Text: 512,
		Syncs: 16, Batches: 16384, Hashes: 4096, Prefix: 1000, Peers: 8,
		Silence: 300 * effects.Second, Parted: 300 * effects.Second,
		Yield: 30 * effects.Second, Patience: 60 * effects.Second,
		Fade:  600 * effects.Second,
		Sweep: 4096, Ends: 64,
	}
}

// Check returns an error that names the first field that is out of bounds.
func (c *Config) Check() error {
	type bound struct {
		field     string
		value     int
		from, max int
	}
	const any = 1 << 31
	for _, b := range [...]bound{
		{"instances", c.Instances, 1, 1 << 20},
		{"workers", c.Workers, 1, 1 << 20},
		{"workers of one instance", c.OfOne, 1, c.Workers},
		{"workers of one connection", c.OfSource, 1, 1 << 20},
		{"locations", c.Locations, 1, 1 << 10},
		{"holders", c.Holders, 2, index.HoldersMost},
		{"chunks", c.Chunks, 1, any},
		{"locations of a chunk", c.OfChunk, 1, index.HoldersMost},
		{"bytes of a text", c.Text, 1, 1 << 16},
		{"syncs", c.Syncs, 1, c.Holders},
		{"batches", c.Batches, 1, 1 << 20},
		{"hashes", c.Hashes, 1, 1 << 20},
		{"hashes of a prefix", c.Prefix, 1, index.PrefixMost},
		{"peers of an answer", c.Peers, 1, 1 << 10},
		{"rows of a sweep", c.Sweep, 1, any},
		{"ends of a step", c.Ends, 1, any},
	} {
		if b.value < b.from || b.value > b.max {
			return fmt.Errorf("directory: %s: %d is not within %d and %d", b.field, b.value, b.from, b.max)
		}
	}
	if c.Silence < 0 || c.Parted < 0 || c.Yield < 0 || c.Fade < 0 || c.Patience <= 0 {
		return fmt.Errorf("directory: silence %v, parted %v, yield %v, fade %v and patience %v: none may be less than "+
			"0, nor the last 0", c.Silence, c.Parted, c.Yield, c.Fade, c.Patience)
	}
	return nil
}
