package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// linesBefore is how much of the log is shown above a line that differs.
const linesBefore = 3

// explain names the first seed of a block that another commit runs differently, and the first line of its log.
func explain(w io.Writer, b block, before string) error {
	commits, err := commitsBefore(before)
	if err != nil {
		return err
	}
	for _, commit := range commits {
		old, err := binaryOf(commit)
		if err != nil {
			return err
		}
		seed, ok, err := firstSeed(old, b)
		if err != nil {
			return err
		}
		if !ok {
			fmt.Fprintf(w, "%s runs %s as it runs here: the difference is older\n", commit, b)
			continue
		}
		fmt.Fprintf(w, "seed %s of %s is the first that %s runs differently:\n", seed, b.profile, commit)
		return showLine(w, old, b.profile, seed)
	}
	fmt.Fprintf(w, "no commit that was asked runs %s differently: name an older one with -before\n", b)
	return nil
}

// firstSeed is the first of a block whose hash the other binary has not.
func firstSeed(old binary, b block) (seed string, differs bool, err error) {
	here, there, err := both(old, "hashes", printHashes, b.profile, fmt.Sprint(b.first), fmt.Sprint(blockSeeds))
	if err != nil {
		return "", false, err
	}
	i := firstThatDiffers(here, there)
	if i < 0 {
		return "", false, nil
	}
	return fmt.Sprint(b.first + uint64(i)), true, nil
}

// showLine prints the first line of a seed's log that differs, and some before it.
func showLine(w io.Writer, old binary, profile, seed string) error {
	here, there, err := both(old, "log", printLog, profile, seed)
	if err != nil {
		return err
	}
	i := firstThatDiffers(here, there)
	if i < 0 {
		fmt.Fprintln(w, "  the logs are equal: only bytes of a message differ that no line shows")
		return nil
	}
	for _, line := range here[max(0, min(i, len(here))-linesBefore):min(i, len(here))] {
		fmt.Fprintf(w, "    %s\n", line)
	}
	fmt.Fprintf(w, "  - %s\n  + %s\n", lineAt(there, i), lineAt(here, i))
	return nil
}

// both runs a command here and in another binary, and returns their lines.
func both(old binary, name string, run command, args ...string) (here, there []string, err error) {
	var mine bytes.Buffer
	if err := run(&mine, args); err != nil {
		return nil, nil, err
	}
	other, err := old.output(append([]string{name}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	return lines(mine.String()), lines(other), nil
}

func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// firstThatDiffers is the place of the first line that two lists do not share, or -1.
func firstThatDiffers(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func lineAt(lines []string, i int) string {
	if i >= len(lines) {
		return "(the log has ended)"
	}
	return strings.TrimSpace(lines[i])
}
