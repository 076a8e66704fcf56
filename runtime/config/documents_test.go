package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var yamlFence = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// yamlOf returns the text of a document and the YAML files that it shows.
func yamlOf(t *testing.T, document string) (text string, files []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", document))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range yamlFence.FindAllStringSubmatch(string(b), -1) {
		files = append(files, m[1])
	}
	return string(b), files
}

// docs/first-hour.md shows two files. The first one is right, the second one has two mistakes, and the page quotes the
// error for each.
func TestConfigurationsOfTheFirstHour(t *testing.T) {
	text, files := yamlOf(t, "docs/first-hour.md")
	if len(files) != 2 {
		t.Fatalf("docs/first-hour.md has %d files, want a receiver's and a sender's", len(files))
	}
	quotes := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(strings.Join(strings.Fields(text), " "), err.Error()) {
			t.Errorf("docs/first-hour.md does not quote the error %v", err)
		}
	}
	parse := func(name, file string) *Config {
		t.Helper()
		c, err := Parse(name, []byte(file), nil)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	receiver := parse("receiver.yaml", files[0])
	_, err := Parse("sender.yaml", []byte(files[1]), nil)
	quotes(err)
	mended := strings.Replace(files[1], "put_timout", "put_timeout", 1)
	quotes(&Error{Problems: Compare(parse("sender.yaml", mended), receiver)})
	right := parse("sender.yaml", strings.Replace(mended, "half", "bfloat16", 1))
	if problems := Compare(right, receiver); len(problems) > 0 {
		t.Error(problems)
	}
}

// Nodes accept the files that other pages tell users to write.
func TestConfigurationsOfOtherPages(t *testing.T) {
	for _, page := range []string{"python/README.md", "docs/vllm.md"} {
		_, files := yamlOf(t, page)
		if len(files) == 0 {
			t.Errorf("%s has no files", page)
		}
		for _, file := range files {
			if _, err := Parse(page, []byte(file), nil); err != nil {
				t.Error(err)
			}
		}
	}
}
