package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/sim"
)

// changesFile says of each change that was meant when, on top of which commit, where and why.
const changesFile = "tools/guard/changes.md"

// baseline writes the lines of profiles that have none. What is there already only accept replaces.
func baseline(w io.Writer, args []string) error {
	flags := flagsOf("baseline")
	profile := flags.String("profile", "", "the profile; all that have no lines if empty")
	if names, err := parse(flags, args); err != nil || len(names) > 0 {
		return errors.Join(err, unknown(names))
	}
	kept, err := readHashes(hashesFile)
	if errors.Is(err, fs.ErrNotExist) {
		kept, err = hashes{}, nil
	}
	if err != nil {
		return err
	}
	profiles, err := profilesOf(*profile)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(profiles, func(p string) bool { return len(kept.of(p)) > 0 })
	if len(missing) == 0 {
		return fmt.Errorf("%s has the lines of all these profiles: guard accept -why TEXT writes them anew", hashesFile)
	}
	if err := kept.keep(missing); err != nil {
		return err
	}
	fmt.Fprintf(w, "the first seeds of %s are kept\n", strings.Join(missing, ", "))
	return kept.write(hashesFile)
}

// accept writes the lines of some profiles anew, and why.
func accept(w io.Writer, args []string) error {
	flags := flagsOf("accept")
	why := flags.String("why", "", "what changed, and why that was meant")
	names, err := parse(flags, args)
	if err != nil {
		return err
	}
	if len(names) == 0 || strings.TrimSpace(*why) == "" {
		return errors.New("accept wants profiles and the reason: guard accept swarm full -why TEXT")
	}
	for _, name := range names {
		if err := sim.CheckProfile(name); err != nil {
			return err
		}
	}
	kept, err := readHashes(hashesFile)
	if err != nil {
		return err
	}
	if err := kept.keep(names); err != nil {
		return err
	}
	on, err := git("rev-parse", "--short", "HEAD")
	if err != nil {
		return err
	}
	if err := kept.write(hashesFile); err != nil {
		return err
	}
	line := fmt.Sprintf("- %s, on top of %s: %s: %s\n", time.Now().UTC().Format(time.DateOnly), on,
		strings.Join(names, ", "), strings.TrimSpace(*why))
	fmt.Fprint(w, line)
	return add(changesFile, line)
}

// add writes text at the end of a file.
func add(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// profilesOf is one profile, or all if name is empty.
func profilesOf(name string) ([]string, error) {
	if name == "" {
		return sim.Profiles(), nil
	}
	return []string{name}, sim.CheckProfile(name)
}

// unknown refuses names where none belongs.
func unknown(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%q is not understood", names)
}
