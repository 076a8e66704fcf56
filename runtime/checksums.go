package runtime

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/plane"
)

// With data.checksum: transfer, a node states the checksum of each chunk that its engine puts, saves, stores or shares, and
// compares what arrives here with the checksum that its source stated. The checksum goes with the chunk, so a chunk
// that was pushed, recalled and shared again is compared with what its first engine handed over.

// keptPagesMax is the number of corrupt pages of a node that are written to files.
const keptPagesMax = 16

// newVerifier returns what compares pages with checksums, or nil if nothing is to be compared. Corrupt pages are logged, at
// a limited rate because a peer may state any checksum. The first ones are written to files below the folder keep unless
// it is empty.
func newVerifier(enabled bool, keep string, log *slog.Logger, lines *loglimit.Log) *plane.Verifier {
	if !enabled {
		return nil
	}
	kept := new(atomic.Int32)
	return &plane.Verifier{OnCorrupt: func(page effects.Page, found effects.Sum, bytes []byte) {
		attrs := []any{"code", effects.Corrupt.String(), "page", page.Index, "bytes", page.Length, "stated", formatSum(page.Sum),
			"found", formatSum(found), "remedy", effects.RemedyOf(effects.Corrupt)}
		if keep != "" && kept.Add(1) <= keptPagesMax {
			name := filepath.Join(keep, fmt.Sprintf("page-%d-%d-%s.bin", page.Index, page.Generation, formatSum(page.Sum)))
			attrs = append(attrs, "kept_in", name)
			// The page is used again soon, and this goroutine has more pages to store.
			go keepPage(name, append([]byte(nil), bytes...), log)
		}
		lines.WriteLimited(slog.LevelError, "a page does not have the checksum that its source stated, and is not used", "", attrs...)
	}}
}

// verifyWorkers is the number of goroutines that compare pages for a machine.
const verifyWorkers = 2

// verifications carries out the Verify effects of a machine, on goroutines of its own.
type verifications struct {
	verifier *plane.Verifier
	tasks    taskRunner
}

// start begins a Verify, and never blocks. The completion is posted to box.
func (v *verifications) start(e *effects.Verify, bytes func(effects.Page) []byte, box *mailbox) {
	corr, pages := e.Corr, slices.Clone(e.Pages)
	v.tasks.runTask(func() {
		done := &effects.Verified{Corr: corr, Pages: make([]effects.Page, 0, len(pages))}
		for _, page := range pages {
			if v.verifier.Verify(page, bytes(page)) {
				done.Pages = append(done.Pages, page)
			}
		}
		done.Corrupt = uint32(len(pages) - len(done.Pages))
		box.Post(done)
	})
}

// keepPage writes the content of a corrupt page to a file that does not exist yet.
func keepPage(name string, bytes []byte, log *slog.Logger) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(bytes)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		log.Warn("a corrupt page cannot be kept", "error", err.Error(), "remedy", "make the folder that data.checksum_keep names")
	}
}

func formatSum(s effects.Sum) string { return strconv.FormatUint(uint64(s), 16) }

// stateSums sets the checksum of each page, whose bytes the engine has completed, if the node states checksums.
func (n *Node) stateSums(pages []effects.Page) {
	if n.verifier == nil {
		return
	}
	for i := range pages {
		pages[i].Sum = effects.SumOf(n.driver.memory.hostBytes(pages[i]))
	}
}

// Verify compares the bytes of page i of a Get with the checksum that their source stated, and returns an *Error with the
// code Corrupt if they differ. The chunk was compared when it arrived; Verify finds what has changed it since then.
// Without a checksum (see data.checksum) Verify finds nothing.
func (p *Pages) Verify(i int) error {
	page, err := p.pageAt("verify", i)
	if err != nil || page.Sum == 0 {
		return err
	}
	bytes := p.node.driver.memory.hostBytes(page)
	if bytes == nil || page.HasSum(bytes) {
		return nil
	}
	return &Error{Op: "verify", Code: effects.Corrupt, Field: "checksum of page " + strconv.Itoa(i), Ours: formatSum(effects.SumOf(bytes)),
		Theirs: formatSum(page.Sum), Remedy: effects.RemedyOf(effects.Corrupt)}
}

// Checksums are the counts of a node that compares pages with checksums (data.checksum).
type Checksums struct {
	Bytes   uint64 // bytes that were compared
	Corrupt uint64 // pages that did not have the checksum that their source stated
}

// Checksums returns what the node has compared since it was opened.
func (n *Node) Checksums() Checksums {
	if n.verifier == nil {
		return Checksums{}
	}
	return Checksums{Bytes: n.verifier.Bytes(), Corrupt: n.verifier.Corrupt()}
}
