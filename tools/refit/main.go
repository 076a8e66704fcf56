// Command refit makes patches anew whose code was moved.
//
// Each patch in sim/mutants puts a defect back (docs/mutants.md). Whoever moves or renames the code around it has to
// make the same defect in the new place. refit does it where that place is plain: it looks through all files of fsm and
// sim for the lines that the patch takes out, with what stood around them, white space and the letters before a dot
// (`s.`, `r.`) apart. If there is one such place for each change of a patch, the patch is written anew: the lines above
// its diff stay, paths, line numbers and context are those of the tree. Otherwise it prints the patch and where it
// might belong, and leaves it. tools/mutants -quick then says whether it is still the same defect.
//
// A map of names has lines "old new" (or "old => new"), which are replaced as whole words in all lines of a patch. With
// -from, what stood around a change is taken from that commit, more of it than a patch has.
//
// usage: go run ./tools/refit [-map FILE] [-from COMMIT] [-run REGEXP] [-dir sim/mutants]
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// roots are where a defect may be put back.
var roots = []string{"fsm", "sim"}

func main() {
	names := flag.String("map", "", "a file with lines \"old new\": identifiers that were renamed")
	from := flag.String("from", "", "a commit in which the patches applied, for more of what stood around their changes")
	only := flag.String("run", ".", "only patches whose file name matches this regular expression")
	dir := flag.String("dir", filepath.Join("sim", "mutants"), "folder of the patch files")
	flag.Parse()
	left, err := refitAll(os.Stdout, ".", *dir, *only, *names, *from)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "refit:", err)
		os.Exit(2)
	case left > 0:
		os.Exit(1)
	}
}

// refitAll makes the patches of a folder anew that do not apply to the tree any more, and says how many it left.
func refitAll(w io.Writer, tree, dir, only, names, from string) (left int, err error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return 0, err
	}
	renames, err := readRenames(names)
	if err != nil {
		return 0, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return 0, err
	}
	t, err := readTree(tree)
	if err != nil {
		return 0, err
	}
	done := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return left, err
		}
		if !pattern.MatchString(filepath.Base(path)) || t.applies(string(text)) {
			continue
		}
		p, err := parsePatch(string(text))
		if err != nil {
			return left, fmt.Errorf("%s: %w", path, err)
		}
		if from != "" {
			p.widen(t, from)
		}
		p.rename(renames)
		anew, found := t.refit(w, filepath.Base(path), p)
		if !found {
			fmt.Fprintf(w, "%s\n", text)
			left++
			continue
		}
		if err := os.WriteFile(path, []byte(anew), 0o644); err != nil {
			return left, err
		}
		done++
	}
	fmt.Fprintf(w, "%d patches made anew, %d left\n", done, left)
	return left, nil
}
