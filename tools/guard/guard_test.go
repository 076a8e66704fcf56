package main

import (
	"bytes"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

// What comes of a block depends neither on how many run at once nor on what ran before it.
func TestBlocksDoNotDependOnEachOther(t *testing.T) {
	blocks := []block{{"calm", 0}, {"crash", 50}, {"calm", 50}}
	alone, err := runAll(blocks, 1)
	if err != nil {
		t.Fatal(err)
	}
	together, err := runAll(blocks, 3)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(alone, together) {
		t.Errorf("one after the other %+v, at once %+v", alone, together)
	}
	if alone[0].hash == alone[2].hash || alone[0].steps == 0 {
		t.Errorf("other seeds give the same: %+v", alone)
	}
	var lines bytes.Buffer
	if err := printHashes(&lines, []string{"calm", "0", "50"}); err != nil {
		t.Fatal(err)
	}
	hash := fnv.New64a()
	hash.Write(lines.Bytes())
	if got := alone[0].hash; got != hash.Sum64() {
		t.Errorf("a block's hash is %x, and that of its lines %x", got, hash.Sum64())
	}
	if _, err := runAll([]block{{"none", 0}}, 1); err == nil {
		t.Error("a profile that there is not was run")
	}
}

func TestALineTellsABrokenPromise(t *testing.T) {
	whole, broken := sim.Result{Seed: 3, Hash: 7}, sim.Result{Seed: 3, Hash: 7, Failure: &sim.Failure{Property: "S4"}}
	if a, b := lineOf(&whole), lineOf(&broken); a == b || !strings.HasSuffix(b, "breaks S4") {
		t.Errorf("%q and %q", a, b)
	}
}

func TestHashesAreReadAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hashes.txt")
	kept := hashes{{"swarm", 0}: 0xabc, {"swarm", 50}: 1, {"swarm", 1000}: 2, {"full", 0}: ^uint64(0)}
	if err := kept.write(path); err != nil {
		t.Fatal(err)
	}
	want := "swarm 0 50 0000000000000abc\nswarm 50 50 0000000000000001\nswarm 1000 50 0000000000000002\n" +
		"full 0 50 ffffffffffffffff\n"
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("got %q, %v", text, err)
	}
	if got, err := readHashes(path); err != nil || !reflect.DeepEqual(got, kept) {
		t.Errorf("got %v, %v", got, err)
	}
	if blocks, err := kept.first([]string{"swarm", "full"}, 50); err != nil || len(blocks) != 2 {
		t.Errorf("got %v, %v", blocks, err)
	}
	if _, err := kept.first([]string{"swarm", "full"}, 100); err == nil {
		t.Error("full has 50 seeds, and 100 were to be had")
	}
	twice := "swarm 0 50 a\nswarm 0 50 b"
	for _, bad := range []string{"swarm 0 50", "swarm 0 49 a", "swarm x 50 a", "swarm 0 50 x", twice} {
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readHashes(path); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// The kept file has every profile in full: check would not begin otherwise.
func TestEveryProfileIsKept(t *testing.T) {
	kept, err := readHashes(filepath.Base(hashesFile))
	if err != nil {
		t.Fatal(err)
	}
	if blocks, err := kept.first(sim.Profiles(), seedsKept); err != nil || len(blocks) != len(kept) {
		t.Errorf("%d of %d lines are of a profile: %v", len(blocks), len(kept), err)
	}
}

func TestADifferenceIsFound(t *testing.T) {
	b := block{"calm", 0}
	f, err := b.run()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if differs, err := compare(&out, hashes{b: f.hash}, []block{b}); err != nil || len(differs) != 0 {
		t.Errorf("equal: got %v, %v", differs, err)
	}
	differs, err := compare(&out, hashes{b: f.hash + 1}, []block{b})
	if err != nil || len(differs) != 1 || !strings.Contains(out.String(), "differs: calm 0 50\n") {
		t.Errorf("other: got %v, %v\n%s", differs, err, &out)
	}
}

// fake is a binary of another commit: it prints what is given, whatever it is asked.
func fake(t *testing.T, text string) binary {
	path := filepath.Join(t.TempDir(), "guard")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncat <<'END'\n"+text+"END\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return binary(path)
}

func TestTheFirstLineIsNamed(t *testing.T) {
	var log, hashes, out bytes.Buffer
	b := block{"calm", 0}
	err := errors.Join(printLog(&log, []string{"calm", "1"}), printHashes(&hashes, []string{"calm", "0", "50"}))
	if err != nil {
		t.Fatal(err)
	}
	was := lines(log.String())
	was[9] = "what was there before"
	if err := showLine(&out, fake(t, strings.Join(was, "\n")+"\n"), "calm", "1"); err != nil {
		t.Fatal(err)
	}
	want := lines(log.String())[6:10]
	if got := out.String(); !strings.Contains(got, "  - what was there before\n  + "+strings.TrimSpace(want[3])) ||
		!strings.Contains(got, want[0]) || strings.Count(got, "\n") != linesBefore+2 {
		t.Errorf("got\n%s", got)
	}

	seeds := lines(hashes.String())
	seeds[17] = "17 0123456789abcdef"
	seed, differs, err := firstSeed(fake(t, strings.Join(seeds, "\n")+"\n"), b)
	if seed != "17" || !differs || err != nil {
		t.Errorf("got %q, %v, %v", seed, differs, err)
	}
	if seed, differs, err := firstSeed(fake(t, hashes.String()), b); differs || err != nil {
		t.Errorf("got %q, %v, %v", seed, differs, err)
	}
}

func TestFirstThatDiffers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", -1}, {"a b", "a b", -1}, {"a b", "a", 1}, {"a", "a b", 1}, {"x b", "a b", 0}} {
		if got := firstThatDiffers(strings.Fields(c.a), strings.Fields(c.b)); got != c.want {
			t.Errorf("%q and %q differ at %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	flags := flagsOf("test")
	why := flags.String("why", "", "")
	names, err := parse(flags, []string{"swarm", "-why", "because", "full"})
	if err != nil || strings.Join(names, " ") != "swarm full" || *why != "because" {
		t.Errorf("got %q, why %q, %v", names, *why, err)
	}
}
