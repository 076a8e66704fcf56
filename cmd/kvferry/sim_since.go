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
func readPrevious(path, profile string) (*campaignReport, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, usageError{fmt.Errorf("--since %s: the folder cannot be created: %w; give a file in a different folder", path, err)}
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
		return nil, usageError{fmt.Errorf("--since %s: the file is not a campaign report: %w; remove it or give a different file", path, err)}
	}
	if r.Profile != profile {
		return nil, usagef("--since %s has profile %q, but this campaign has profile %q; use a separate file for each profile", path, r.Profile,
			profile)
	}
	return r, nil
}

// savePrevious writes the report of a campaign for the next campaign to compare with. It replaces the file atomically.
func savePrevious(path string, r *campaignReport) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := campaign.ReplaceFile(path, text); err != nil {
		return fmt.Errorf("--since %s: the campaign cannot be saved: %w; give a file that can be written", path, err)
	}
	return nil
}

// printDifferences prints the things that only the current campaign met and the things that only the earlier campaign
// met, with their counts.
func printDifferences(b *strings.Builder, before, now *campaignReport) {
	added, missing := metOnlyIn(now, before), metOnlyIn(before, now)
	if len(added)+len(missing) == 0 {
		fmt.Fprintf(b, "%-10s%d seeds, with the same coverage\n", "before", before.Seeds)
		return
	}
	fmt.Fprintf(b, "%-10s%d seeds\n", "before", before.Seeds)
	if len(added) > 0 {
		printList(b, "new", added)
	}
	if len(missing) > 0 {
		printList(b, "gone", missing)
	}
}

// metOnlyIn lists the things that the first campaign met and the second campaign did not meet, with their counts.
func metOnlyIn(one, other *campaignReport) (names []string) {
	for _, s := range sections {
		met, metByOther := one.countsOf(s.name), other.countsOf(s.name)
		for _, name := range slices.Sorted(maps.Keys(met)) {
			if met[name] > 0 && metByOther[name] == 0 {
				names = append(names, fmt.Sprintf("%s %q %d", s.name, name, met[name]))
			}
		}
	}
	return names
}
