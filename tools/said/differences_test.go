package said

import (
	"regexp"
	"strings"
	"testing"
)

// Each difference from the systems that kvferry stands in for says what they do, what kvferry does, why, and which test
// or transcript would fail if that changed. That those are there is TestWhatDocumentsName's.
func TestDifferencesHaveTests(t *testing.T) {
	row := regexp.MustCompile(`(?s)^\*\*.+?\*\* → .+ \*[^*]+\*\s\[[^\[\]]+\]$`)
	rows := 0
	for section := range strings.SplitSeq(read(t, "docs/differences.md"), "\n## ") {
		for i, item := range strings.Split("\n"+section, "\n- ") {
			if i == 0 {
				continue
			}
			rows++
			text := strings.Join(strings.Fields(item), " ")
			if !row.MatchString(text) {
				t.Errorf("%q is not of the form **what they do** → what kvferry does. *why* [tests]", text)
			}
			held := 0
			for _, m := range inline.FindAllStringSubmatch(text[strings.LastIndex(text, "["):], -1) {
				if isTest.MatchString(m[1]) || isFile.MatchString(m[1]) {
					held++
				}
			}
			if held == 0 {
				t.Errorf("%q names no test", text)
			}
		}
	}
	if rows < 30 {
		t.Errorf("only %d differences were found", rows)
	}
}
