package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/campaign"
)

// readPrevious reads the report of an earlier campaign of the same profile from a file, or returns nil if the file does
// not exist. It creates the file's folder, so that a wrong path fails before the campaign and not after it.
func readSince(path, profile string) (*campaignReport, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, usageError{fmt.Errorf("--since %s: its folder cannot be made: %w; name a file elsewhere", path, err)}
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("--since: %w", err)}
	}
	r := new(campaignReport)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, usageError{fmt.Errorf("--since %s: not what a campaign leaves: %w; remove it or name another", path, err)}
	}
	if r.Profile != profile {
		return nil, usagef("--since %s is of profile %q and this campaign of %q; give each its own file", path, r.Profile,
			profile)
	}
	return r, nil
}

// savePrevious writes the report of a campaign for the next campaign to compare with. It replaces the file atomically.
func keepSince(path string, r *campaignReport) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := campaign.Replace(path, text); err != nil {
		return fmt.Errorf("--since %s: the campaign is not kept: %w; name a file that can be written", path, err)
	}
	return nil
}

// printDifferences prints the things that only the current campaign met and the things that only the earlier campaign
// met, with their counts.
func printSince(b *strings.Builder, before, now *campaignReport) {
	came, gone := missing(now, before), missing(before, now)
	if len(came)+len(gone) == 0 {
		fmt.Fprintf(b, "%-10sthe same was met in %d seeds\n", "before", before.Seeds)
		return
	}
	fmt.Fprintf(b, "%-10s%d seeds\n", "before", before.Seeds)
	if len(came) > 0 {
		printList(b, "new", came)
	}
	if len(gone) > 0 {
		printList(b, "gone", gone)
	}
}

// metOnlyIn lists the things that the first campaign met and the second campaign did not meet, with their counts.
func missing(one, other *campaignReport) (names []string) {
	for _, s := range sections {
		met, there := one.counts(s.name), other.counts(s.name)
		for _, name := range slices.Sorted(maps.Keys(met)) {
			if met[name] > 0 && there[name] == 0 {
				names = append(names, fmt.Sprintf("%s %q %d", s.name, name, met[name]))
			}
		}
	}
	return names
}
