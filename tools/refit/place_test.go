package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const before = `package peer

// free gives a page back.
func (p *Pool) free(i int) {
	if p.held(i) > 0 {
		return
	}
	p.stack = append(p.stack, i)
	p.count++
}
`

const defect = `What: a page is free though it is held.
Property: S4
Like: rule M1.

diff --git a/fsm/peer/pool.go b/fsm/peer/pool.go
--- a/fsm/peer/pool.go
+++ b/fsm/peer/pool.go
@@ -2,7 +2,7 @@ package peer
 
 // free gives a page back.
 func (p *Pool) free(i int) {
-	if p.held(i) > 0 {
+	if p.held(i) > 9 {
 		return
 	}
 	p.stack = append(p.stack, i)
`

// refitted runs refit over a tree of these files and one patch, and returns the patch, what was said and what is left.
func refitted(t *testing.T, files map[string]string, patch, names string) (anew, said string, left int) {
	t.Helper()
	tree := t.TempDir()
	for _, root := range roots {
		write(t, filepath.Join(tree, root, "doc.go"), "package "+root)
	}
	for path, text := range files {
		write(t, filepath.Join(tree, path), text)
	}
	path := filepath.Join(tree, "mutants", "one.patch")
	write(t, path, patch)
	if names != "" {
		write(t, filepath.Join(tree, "names"), names)
		names = filepath.Join(tree, "names")
	}
	var out bytes.Buffer
	left, err := refitAll(&out, tree, filepath.Dir(path), ".", names, "")
	if err != nil {
		t.Fatal(err)
	}
	return read(t, path), out.String(), left
}

func TestWhatStillAppliesIsLeftAlone(t *testing.T) {
	anew, said, left := refitted(t, map[string]string{"fsm/peer/pool.go": before}, defect, "")
	if anew != defect || left != 0 || said != "0 patches made anew, 0 left\n" {
		t.Errorf("%d left, %s%s", left, said, anew)
	}
}

// A method that was moved, renamed, and whose receiver and depth are others.
func TestAPatchFollowsItsLines(t *testing.T) {
	after := `package memory

func (q *Pages) release(i int) {
	if q.open {
		if q.inFlight(i) > 0 {
			return
		}
		q.stack = append(q.stack, i)
		q.count++
	}
}
`
	want := `What: a page is free though it is held.
Property: S4
Like: rule M1.

diff --git a/fsm/rank/memory/release.go b/fsm/rank/memory/release.go
INDEX
--- a/fsm/rank/memory/release.go
+++ b/fsm/rank/memory/release.go
@@ -2,7 +2,7 @@ package memory
 
 func (q *Pages) release(i int) {
 	if q.open {
-		if q.inFlight(i) > 0 {
+		if q.inFlight(i) > 9 {
 			return
 		}
 		q.stack = append(q.stack, i)
`
	names := "held => inFlight\nfree release\n"
	anew, said, left := refitted(t, map[string]string{"fsm/rank/memory/release.go": after}, defect, names)
	if i := strings.Index(anew, "index "); i >= 0 {
		anew = anew[:i] + "INDEX" + anew[i+strings.IndexByte(anew[i:], '\n'):]
	}
	if anew != want || left != 0 || !strings.Contains(said, "fsm/rank/memory/release.go:5 (2 of 4 lines)") {
		t.Errorf("%d left, %s%s", left, said, anew)
	}
}

func TestWhatIsNotPlainIsLeft(t *testing.T) {
	twin := strings.Replace(before, "count++", "n++", 1)
	other := strings.NewReplacer("append(p.stack, i)", "with(i)", "gives a page back", "ends it", "free(", "end(")
	little := other.Replace(before)
	for _, c := range []struct {
		name, said string
		files      map[string]string
	}{
		{"two places", "may belong in 2 places\n", map[string]string{"fsm/a/a.go": before, "sim/b/b.go": twin}},
		{"no place", "may belong in 0 places\n", map[string]string{"fsm/a/a.go": strings.Replace(before, "> 0", "!= 0", 1)}},
		{"too little around it", "fsm/a/a.go:5 has 1 of 4", map[string]string{"fsm/a/a.go": little}},
	} {
		anew, said, left := refitted(t, c.files, defect, "")
		if anew != defect || left != 1 || !strings.Contains(said, c.said) || !strings.Contains(said, defect) {
			t.Errorf("%s: %d left, %s%s", c.name, left, said, anew)
		}
	}
}

// Of twins, the one in the function that the patch names is plain, if the other is not in one of that name.
func TestTwinsAreToldApartByTheirFunction(t *testing.T) {
	patch := strings.Replace(defect, "package peer\n \n", "func (p *Pool) free(i int) {\n \n", 1)
	patch = strings.Replace(patch, " // free gives a page back.\n func (p *Pool) free(i int) {\n", " \t// Held?\n", 1)
	patch = strings.Replace(patch, "-2,7 +2,7", "-4,6 +4,6", 1)
	text := strings.Replace(before, "\tif p.held", "\n\t// Held?\n\tif p.held", 1)
	other := strings.Replace(text, "free(", "end(", 1)
	anew, said, left := refitted(t, map[string]string{"fsm/a/a.go": other, "fsm/b/b.go": text}, patch, "")
	if left != 0 || !strings.Contains(anew, "+++ b/fsm/b/b.go\n") {
		t.Errorf("%d left, %s%s", left, said, anew)
	}
	anew, said, left = refitted(t, map[string]string{"fsm/a/a.go": text, "fsm/b/b.go": text}, patch, "")
	if left != 1 || anew != patch {
		t.Errorf("two functions of that name: %d left, %s%s", left, said, anew)
	}
}

// What only puts lines in wants more around it, and one of them beside it.
func TestLinesPutIn(t *testing.T) {
	_, rest, _ := strings.Cut(defect, "> 9 {\n")
	adds, _, _ := strings.Cut(defect, "-\tif")
	adds = strings.Replace(adds, "-2,7 +2,7", "-2,7 +2,8", 1) + "+\tp.count--\n \tif p.held(i) > 0 {\n" + rest
	moved := strings.Replace(before, "package peer\n", "package memory\n\nimport \"fmt\"\n", 1)
	anew, said, left := refitted(t, map[string]string{"fsm/rank/memory/pool.go": moved}, adds, "")
	if left != 0 || !strings.Contains(anew, "+++ b/fsm/rank/memory/pool.go\n") ||
		!strings.Contains(anew, "{\n+\tp.count--\n \tif p.held") {
		t.Errorf("%d left, %s%s", left, said, anew)
	}
	few := strings.NewReplacer("\t\treturn\n", "\t\tpanic(i)\n", "append(p.stack, i)", "with(i)", "page", "leaf")
	moved = few.Replace(moved)
	anew, said, left = refitted(t, map[string]string{"fsm/rank/memory/pool.go": moved}, adds, "")
	if left != 1 || anew != adds {
		t.Errorf("with two lines around it: %d left, %s%s", left, said, anew)
	}
}

// More of what stood around a change, from the commit in which the patch applied, tells twins apart.
func TestACommitTellsMore(t *testing.T) {
	t.Chdir(t.TempDir())
	head, tail := "package peer\n\n// The pool of pages.\nvar pool Pool\n", "\n// Count counts.\nvar Count int\n"
	write(t, "sim/doc.go", "package sim")
	write(t, "fsm/peer/pool.go", head+strings.TrimPrefix(before, "package peer\n")+tail)
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "before")
	patch := strings.Replace(defect, "@@ -2,7 +2,7 @@ package peer", "@@ -5,7 +5,7 @@ var pool Pool", 1)
	write(t, "one.patch", patch)
	text := read(t, "fsm/peer/pool.go")
	write(t, "fsm/peer/pool.go", "package peer\n")
	write(t, "fsm/a/a.go", text)
	write(t, "fsm/b/b.go", before)
	var out bytes.Buffer
	if left, err := refitAll(&out, ".", ".", ".", "", ""); left != 1 || err != nil {
		t.Fatalf("twins: %d left, %v\n%s", left, err, &out)
	}
	if left, err := refitAll(&out, ".", ".", ".", "", "HEAD"); left != 0 || err != nil {
		t.Fatalf("%d left, %v\n%s", left, err, &out)
	}
	if anew := read(t, "one.patch"); !strings.Contains(anew, "+++ b/fsm/a/a.go\n") {
		t.Errorf("got\n%s", anew)
	}
}

func TestPatchesThatAreNone(t *testing.T) {
	for _, bad := range []string{
		"", "What: nothing.\n", strings.Replace(defect, "--- a/", "new file mode 100644\n--- a/", 1),
		strings.Replace(defect, "\n-\tif", "\n*\tif", 1),
	} {
		if p, err := parsePatch(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, p)
		}
	}
	path := filepath.Join(t.TempDir(), "names")
	write(t, path, "one two three")
	if _, err := readRenames(path); err == nil {
		t.Error("a line of three names was read")
	}
}
