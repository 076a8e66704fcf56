//go:build unix

package proctest

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// TB is the testing.TB of a process that is not a test. A failure ends the process, so cleanups are not needed.
type TB struct{ testing.TB }

func (TB) Helper()                           {}
func (TB) Cleanup(func())                    {}
func (TB) Context() context.Context          { return context.Background() }
func (t TB) Error(args ...any)               { t.Fatal(args...) }
func (t TB) Errorf(format string, as ...any) { t.Fatalf(format, as...) }
func (t TB) Fatalf(format string, as ...any) { t.Fatal(fmt.Sprintf(format, as...)) }
func (t TB) Skip(args ...any)                { t.Fatal(args...) }

// Fatal prints the arguments and ends the process.
func (TB) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"child:"}, args...)...)
	os.Exit(1)
}
