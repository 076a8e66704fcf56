package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/sim"
)

// hashesFile has a line for each block: its profile, first seed, number of seeds and hash.
const hashesFile = "tools/guard/hashes.txt"

// seedsKept is how many seeds of each profile are kept.
const seedsKept = 1000

// seedsOf is how many of so many seeds are kept of a profile. One of a fleet takes as long as fifty of others.
func seedsOf(profile string, seeds uint64) uint64 {
	if profile == "fleet" {
		return min(seeds, 2*blockSeeds)
	}
	return seeds
}

// hashes are the kept hashes.
type hashes map[block]uint64

func readHashes(path string) (hashes, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	kept := hashes{}
	for line := range strings.Lines(string(text)) {
		b, hash, err := parseHash(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if _, twice := kept[b]; twice {
			return nil, fmt.Errorf("%s: there are two lines of %s: take one out", path, b)
		}
		kept[b] = hash
	}
	return kept, nil
}

func parseHash(line string) (b block, hash uint64, err error) {
	cells := strings.Fields(line)
	if len(cells) == 4 && cells[2] == strconv.Itoa(blockSeeds) {
		b.profile = cells[0]
		b.first, err = strconv.ParseUint(cells[1], 10, 64)
		if err == nil {
			hash, err = strconv.ParseUint(cells[3], 16, 64)
		}
		if err == nil {
			return b, hash, nil
		}
	}
	return b, 0, fmt.Errorf("the line is %q; want a profile, its first seed, %d and a hash", line, blockSeeds)
}

// write writes the file anew, by profile in the simulator's order and by seed.
func (h hashes) write(path string) error {
	var text strings.Builder
	for _, profile := range sim.Profiles() {
		for _, b := range h.of(profile) {
			fmt.Fprintf(&text, "%s %016x\n", b, h[b])
		}
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

// of are the kept blocks of a profile in order.
func (h hashes) of(profile string) (blocks []block) {
	for b := range h {
		if b.profile == profile {
			blocks = append(blocks, b)
		}
	}
	slices.SortFunc(blocks, func(a, b block) int { return int(a.first) - int(b.first) })
	return blocks
}

// first are the blocks of the first seeds of each profile. It refuses a profile of which fewer are kept.
func (h hashes) first(profiles []string, seeds uint64) (blocks []block, err error) {
	for _, profile := range profiles {
		for first := uint64(0); first < seedsOf(profile, seeds); first += blockSeeds {
			b := block{profile, first}
			if _, ok := h[b]; !ok {
				return nil, fmt.Errorf("%s has no line %s: go run ./tools/guard baseline -profile %s writes those of "+
					"a new profile; fewer -seeds than %d may do", hashesFile, b, profile, seeds)
			}
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// keep runs the seeds of some profiles and takes their hashes. It refuses a tree that breaks a promise.
func (h hashes) keep(profiles []string) error {
	var blocks []block
	for _, profile := range profiles {
		for first := uint64(0); first < seedsOf(profile, seedsKept); first += blockSeeds {
			blocks = append(blocks, block{profile, first})
		}
	}
	folds, err := runAll(blocks, cores())
	if err != nil {
		return err
	}
	for i, b := range blocks {
		if f := folds[i].failed; f != nil {
			return fmt.Errorf("seed %d of %s breaks %s: mend that first; %s shows it", f.Seed, b.profile, f.Property,
				f.Replay())
		}
		h[b] = folds[i].hash
	}
	return nil
}
