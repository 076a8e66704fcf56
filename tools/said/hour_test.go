package said

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/config"
)

// The files of docs/first-hour.md are what it says: one is right, the other has the two mistakes that the commands
// after it find, in these words.
func TestConfigurationsOfTheFirstHour(t *testing.T) {
	text := read(t, "docs/first-hour.md")
	files := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(files) != 2 {
		t.Fatalf("docs/first-hour.md has %d files, want a receiver's and a sender's", len(files))
	}
	told := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(strings.Join(strings.Fields(text), " "), err.Error()) {
			t.Errorf("it is told %v, and docs/first-hour.md says otherwise", err)
		}
	}
	parse := func(name, file string) *config.Config {
		t.Helper()
		c, err := config.Parse(name, []byte(file), nil)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	receiver := parse("receiver.yaml", files[0][1])
	_, err := config.Parse("sender.yaml", []byte(files[1][1]), nil)
	told(err)
	mended := strings.Replace(files[1][1], "put_timout", "put_timeout", 1)
	told(&config.Error{Problems: config.Compare(parse("sender.yaml", mended), receiver)})
	right := parse("sender.yaml", strings.Replace(mended, "half", "bfloat16", 1))
	if problems := config.Compare(right, receiver); len(problems) > 0 {
		t.Error(problems)
	}
}

// The files that other pages tell users to write are ones that nodes take.
func TestConfigurationsOfOtherPages(t *testing.T) {
	for _, page := range []string{"python/README.md", "docs/vllm.md"} {
		files := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, page), -1)
		if len(files) == 0 {
			t.Errorf("%s has no files", page)
		}
		for _, file := range files {
			if _, err := config.Parse(page, []byte(file[1]), nil); err != nil {
				t.Error(err)
			}
		}
	}
}
