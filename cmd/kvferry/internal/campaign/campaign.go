// Package campaign records in a file the seeds that campaigns of the simulator have run, so that the next campaign
// continues where the last campaign ended and no seed is run twice.
//
// For example, a first run opens the file, runs 1,000 seeds from seed 1, adds the summary and saves the file. The next
// run reads from the file that the profile's next seed is 1,001.
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

// version is the version of the file's format.
const version = 1

// A File is an open campaign file. The file is locked against use by a second campaign until Close.
type File struct {
	path string
	lock *os.File

	Version  int                 `json:"version"`
	Profiles map[string]*Profile `json:"profiles"`
}

// A Profile records the seeds that campaigns have run of one profile.
type Profile struct {
	Next         uint64            `json:"next_seed"`
	Seeds        uint64            `json:"seeds"`
	Steps        uint64            `json:"steps"`
	Failed       uint64            `json:"failed"`
	Conjunctions map[string]uint64 `json:"conjunctions"` // number of occurrences of each conjunction
	Findings     []Finding         `json:"findings,omitempty"`
	// FindingsOmitted is the number of findings that are not in Findings, because there are more than findingsMax.
	FindingsOmitted uint64 `json:"findings_left_out,omitempty"`
}

// A Finding is a seed that failed.
type Finding struct {
	Seed     uint64 `json:"seed"`
	Property string `json:"property"`
	Story    string `json:"story"`
}

// findingsMax is the number of findings that are kept for one profile, oldest first. A defect that many seeds find
// needs no more.
const findingsMax = 200

// Open locks and reads a campaign file. If the file does not exist, the File is empty. Open fails if a second campaign
// has locked the file or if the file is malformed; the error names the file and the remedy.
func Open(path string) (*File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("campaign file %s cannot be locked: %w", path, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil,
			fmt.Errorf("campaign file %s is in use by another campaign: wait until that campaign has ended, or give a different file", path)
	}
	b := &File{path: path, lock: lock, Version: version, Profiles: map[string]*Profile{}}
	if err := b.readFile(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *File) readFile() error {
	text, err := os.ReadFile(b.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("campaign file %s cannot be read: %w", b.path, err)
	}
	formatErr := func(format string, args ...any) error {
		return fmt.Errorf("campaign file %s: "+format+": give a file that sim run --continue has written, or move this file "+
			"away to start again",
			append([]any{b.path}, args...)...)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	b.Version, b.Profiles = 0, nil
	if err := d.Decode(b); err != nil {
		return formatErr("it cannot be parsed (%v)", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return formatErr("there is data after the end of the JSON object")
	}
	if b.Version != version {
		return formatErr("version is %d, but this program supports version %d", b.Version, version)
	}
	if b.Profiles == nil {
		return formatErr("profiles is missing")
	}
	for name, p := range b.Profiles {
		switch {
		case sim.CheckProfile(sim.ProfileOfSeed(0, name)) != nil:
			return formatErr("profile %q is unknown; the profiles are %s", name, strings.Join(sim.Profiles(), ", "))
		case p == nil:
			return formatErr("profile %s is empty", name)
		case p.Next < p.Seeds:
			return formatErr("profile %s: next_seed is %d although %d seeds were run", name, p.Next, p.Seeds)
		}
		if p.Conjunctions == nil {
			p.Conjunctions = map[string]uint64{}
		}
	}
	return nil
}

// ProfileRecord returns the record of a profile. If there is no record of the profile, ProfileRecord adds a record
// whose next seed is start.
func (b *File) ProfileRecord(profile string, start uint64) *Profile {
	p := b.Profiles[profile]
	if p == nil {
		p = &Profile{Next: start, Conjunctions: map[string]uint64{}}
		b.Profiles[profile] = p
	}
	return p
}

// AddSummary records a campaign that began with the seed Next and ran s.Seeds consecutive seeds.
func (p *Profile) AddSummary(s *sim.Summary, found []Finding) {
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
	p.FindingsOmitted += uint64(max(0, len(found)-room))
	p.Findings = append(p.Findings, found[:min(room, len(found))]...)
}

// Unmet returns the conjunctions that seeds of the profile can meet but have never met.
func (p *Profile) Unmet(profile string) []sim.Conjunction {
	return slices.DeleteFunc(sim.RequiredConjunctions(profile), func(c sim.Conjunction) bool { return p.Conjunctions[c.String()] > 0 })
}

// Save replaces the file atomically.
func (b *File) Save() error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	if err := ReplaceFile(b.path, append(text, '\n')); err != nil {
		return fmt.Errorf("campaign file %s cannot be written: %w", b.path, err)
	}
	return nil
}

// ReplaceFile replaces a file atomically. The caller must have read the file before. If path is a symbolic link, the
// link stays and the file that the link names is replaced.
func ReplaceFile(path string, text []byte) error {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, linkErr := os.Lstat(path); linkErr != nil { // Otherwise path is a dangling link, which is not replaced.
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

// Close unlocks the file for other campaigns. It does not save the file.
func (b *File) Close() { _ = b.lock.Close() }
