// Package campaign keeps what campaigns of the simulator have run in a file, so that the next one goes on where the
// last one ended and no seed is run twice.
package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kvferry/kvferry/sim"
)

// version is of the file's format.
const version = 1

// A Book is a campaign file that is open, and locked against others until Close.
type Book struct {
	path string
	lock *os.File

	Version  int                 `json:"version"`
	Profiles map[string]*Profile `json:"profiles"`
}

// A Profile is what was run of one profile.
type Profile struct {
	Next         uint64            `json:"next_seed"`
	Seeds        uint64            `json:"seeds"`
	Steps        uint64            `json:"steps"`
	Failed       uint64            `json:"failed"`
	Conjunctions map[string]uint64 `json:"conjunctions"` // how often each was met
	Findings     []Finding         `json:"findings,omitempty"`
	// Left is how many more findings there were than are kept.
	Left uint64 `json:"findings_left_out,omitempty"`
}

// A Finding is a seed that failed.
type Finding struct {
	Seed     uint64 `json:"seed"`
	Property string `json:"property"`
	Story    string `json:"story"`
}

// findingsMax bounds what is kept of one profile, oldest first: a defect that many seeds meet needs no more.
const findingsMax = 200

// Open locks and reads a campaign file; one that does not exist is begun. The error names the file and what to do.
func Open(path string) (*Book, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("campaign file %s cannot be locked: %w", path, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil,
			fmt.Errorf("campaign file %s is in use by another campaign: wait until that has ended, or give another file", path)
	}
	b := &Book{path: path, lock: lock, Version: version, Profiles: map[string]*Profile{}}
	if err := b.read(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Book) read() error {
	text, err := os.ReadFile(b.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("campaign file %s cannot be read: %w", b.path, err)
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("campaign file %s: "+format+": give a file that sim run --continue has written, or move this one "+
			"away to begin anew",
			append([]any{b.path}, args...)...)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	b.Version, b.Profiles = 0, nil
	if err := d.Decode(b); err != nil {
		return bad("not readable (%v)", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows its end")
	}
	if b.Version != version {
		return bad("version is %d, this program knows %d", b.Version, version)
	}
	if b.Profiles == nil {
		return bad("profiles is missing")
	}
	for name, p := range b.Profiles {
		switch {
		case sim.CheckProfile(sim.ProfileOf(0, name)) != nil:
			return bad("profile %q is unknown, there are %s", name, strings.Join(sim.Profiles(), ", "))
		case p == nil:
			return bad("profile %s is empty", name)
		case p.Next < p.Seeds:
			return bad("profile %s: next_seed is %d although %d seeds were run", name, p.Next, p.Seeds)
		}
		if p.Conjunctions == nil {
			p.Conjunctions = map[string]uint64{}
		}
	}
	return nil
}

// Of is what was run of a profile, to be gone on with from start if nothing was.
func (b *Book) Of(profile string, start uint64) *Profile {
	p := b.Profiles[profile]
	if p == nil {
		p = &Profile{Next: start, Conjunctions: map[string]uint64{}}
		b.Profiles[profile] = p
	}
	return p
}

// Add notes a campaign that began at Next and ran all seeds from there on.
func (p *Profile) Add(s *sim.Summary, found []Finding) {
	p.Next += s.Seeds
	p.Seeds += s.Seeds
	p.Steps += s.Steps
	p.Failed += s.Failed
	for name, n := range s.Coverage.Counts("conjunction") {
		p.Conjunctions[name] += n
	}
	slices.SortFunc(found, func(a, b Finding) int {
		if a.Seed < b.Seed {
			return -1
		}
		return 1
	})
	room := max(0, findingsMax-len(p.Findings))
	p.Left += uint64(max(0, len(found)-room))
	p.Findings = append(p.Findings, found[:min(room, len(found))]...)
}

// Unmet are the conjunctions that seeds of the profile can meet and never did.
func (p *Profile) Unmet(profile string) []sim.Conjunction {
	return slices.DeleteFunc(sim.Meetable(profile), func(c sim.Conjunction) bool { return p.Conjunctions[c.String()] > 0 })
}

// Save writes the file anew, whole or not at all.
func (b *Book) Save() error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	if err := Replace(b.path, append(text, '\n')); err != nil {
		return fmt.Errorf("campaign file %s cannot be written: %w", b.path, err)
	}
	return nil
}

// Replace writes a file anew, whole or not at all. Its caller has read the file before, and knows it. A symbolic link
// stays, and the file that it names is replaced.
func Replace(path string, text []byte) error {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, linkErr := os.Lstat(path); linkErr != nil { // Else it is a link to nothing, which stays.
			target, err = path, nil
		}
	}
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(target), filepath.Base(target)+".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Close lets others have the file. It does not save.
func (b *Book) Close() { _ = b.lock.Close() }
