package directory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
)

// Config bounds a directory. [Default] has values for each field.
type Config struct {
	Seed uint64 // a secret, from which it hides hashes

	Instances int
	Workers   int // of all instances
	OfOne     int // workers of one instance
	OfSource  int // workers on one connection
	Locations int // of one worker
	Holders   int // locations of all workers, those counted that fill or are swept away; at most index.HoldersMost

	Chunks  int // of all locations: the same chunk at two of them counts twice
	OfChunk int // locations that have the same chunk, of one rank
	Text    int // bytes of a name, an address or the id of a sync

	Syncs   int // at a time
	Batches int // of one sync
	Hashes  int // in one batch of a sync, or operations in one report
	Prefix  int // hashes in one lookup
	Peers   int // in one answer

	Silence effects.Duration // after which a worker is taken for dead; 0: none is
	// OnlyBeats: Silence is of workers that send heartbeats. Others may have nothing to say for as long as they run.
	OnlyBeats bool
	Parted    effects.Duration // after which one is that has no connection, and says nothing; 0: none is
	Yield     effects.Duration // after which one that was not heard by one directory is believed to be heard by another
	Patience  effects.Duration // with a sync that does not go on
	Fade      effects.Duration // after which what was told before operations were missing is not believed; 0: it always is

	Sweep int // rows that a step looks at to sweep
	Ends  int // workers, syncs and fades that end in one step because their time is over
}

// Default is for a fleet of a thousand workers, and takes 300 MB at the most when it is full.
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

// Check says what is wrong with the bounds.
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
