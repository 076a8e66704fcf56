package main

import (
	"bytes"
	"context"
	"testing"
)

// seeking is a command in which seed 4 breaks S2 and seed 7 breaks S4 if its constant has a wrong value.
const seeking = `package main

import (
	"fmt"
	"os"
	"strconv"
)

const quarantine = 1

func main() {
	if quarantine == 1 {
		fmt.Println("every promise held")
		return
	}
	first, _ := strconv.Atoi(os.Args[2])
	n, _ := strconv.Atoi(os.Args[3])
	if n < 1 {
		os.Exit(2)
	}
	if first < 5 {
		fmt.Println("seed 4 breaks S2: torn")
	}
	if first+n > 7 && len(os.Args) > 4 && os.Args[4] == "S4" {
		fmt.Println("seed 7 breaks S4: a free page was written")
	}
	os.Exit(1)
}
`

func TestQuickHunt(t *testing.T) {
	const seek, command = "tools/mutants/seek.quarantine", "cmd/kvferry.quarantine"
	known := func(seed string) string { return "  property: [S4]\n  found: seed " + seed + ", 9 of 2000 fail\n" }
	mutants := project(t, map[string]string{"tools/mutants/seek/main.go": seeking, "cmd/kvferry/main.go": simulated},
		entry("beyond", known("30"), seek, "0"), // The recorded seed is run although only 20 seeds are requested.
		entry("explored", "  scope: push\n  property: [S4]\n", command, "0"),
		entry("known", known("4"), seek, "0"),
		entry("late", known("6"), seek, "0"),
		entry("never", known("5"), seek, "1 * 1"),
		entry("other", "  property: [S2, S9]\n", seek, "0"),
		entry("planned", "  plan: kept\n  property: [S4]\n", command, "0"),
	)
	var out bytes.Buffer
	o := testOptions()
	finds, failed, err := quickHunt(context.Background(), &out, mutants, 20, o)
	if err != nil || len(finds) != 5 || failed != 2 {
		t.Fatalf("got %d passed, %d failed, %v\n%s", len(finds), failed, err, &out)
	}
	saysOf(t, out.String(), map[string]string{
		"beyond": "  seed 7 ", "explored": "7 choices", "known": "  seed 4 ", "late": "  seed 7, not the one before",
		"never": "15 seeds found nothing", "other": "not a breach of S9", "planned": "plan",
	})

	t.Log("# what is not found so is looked for in full, if that is wished")
	out.Reset()
	o.fallback = true
	_, failed, err = quickHunt(context.Background(), &out, mutants[4:5], 20, o)
	if err != nil || failed != 1 {
		t.Errorf("%d failed, %v\n%s", failed, err, &out)
	}
	saysOf(t, out.String(), map[string]string{"never": "20 seeds found nothing"})
}
