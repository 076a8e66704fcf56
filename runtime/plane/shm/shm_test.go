package shm_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

func TestContractWithOneCopier(t *testing.T) {
	if testing.Short() { // The race detector takes minutes here, and sees the same in TestContract.
		t.Skip("the contract again, with another way to copy")
	}
	planetest.Run(t, shm.Config{Copiers: 1, NonTemporalBytes: 1}.Open)
}

func TestContractInsideCaches(t *testing.T) {
	if testing.Short() { // The race detector takes minutes here, and sees the same in TestContract.
		t.Skip("the contract again, with another way to copy")
	}
	planetest.Run(t, shm.Config{NonTemporalBytes: 1 << 62}.Open)
}

// A source page that its owner has taken back meanwhile is never delivered as the pushed content (M3). One copy thread
// takes the pages in order; several may meet the stale page first, which ends the transfer for those that are still
// being copied.
func TestReusedSourcePageIsStale(t *testing.T) {
	const size = 5000
	a, b := planetest.OpenNode(t, shm.Open, 1, 4, size), planetest.OpenNode(t, shm.Config{Copiers: 1}.Open, 2, 4, size)
	link := a.Import(t, b.Inc, b.Plane.Blob())
	from := a.PublishPages(0, 4, size)
	a.PublishPages(3, 1, size) // a new generation of page 3
	grant, into := b.GrantWrite(a.Inc, 0, 4, size)
	corr := a.StartPush(planetest.Push{To: b.Inc, Link: link, Grant: grant, From: from, Into: into,
		Buffer: b.Pool.Buffer().ID})
	if done := a.AwaitDone(t, corr); done.Code != effects.Stale {
		t.Fatalf("ended as %s", done.Code)
	}
	landed := planetest.AwaitEvent(t, b, func(e *effects.Landed) bool { return e.Grant == grant })
	if landed.Complete || len(landed.Pages) != 3 {
		t.Fatalf("landed %d pages, complete %v; want the three that were good", len(landed.Pages), landed.Complete)
	}
}

func TestCloseLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	n := planetest.OpenNode(t, shm.Config{Dir: dir}.Open, 1, 1, 4096)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Fatalf("%d folders, %v", len(left), err)
	} else if info, err := left[0].Info(); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the socket's folder is open to others: %v, %v", info.Mode(), err)
	}
	if err := n.Plane.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatalf("%d folders are left, %v", len(left), err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, c := range []shm.Config{{Copiers: -1}, {Copiers: 1 << 20}} {
		n := planetest.OpenNode(t, shm.Open, 1, 1, 4096)
		if _, err := c.Open(context.Background(),
			plane.Env{Pool: n.Pool, Sink: n, IDs: &plane.IDs{}, Incarnation: n.Inc}); !errors.Is(err, plane.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := shm.Open(context.Background(), plane.Env{}); !errors.Is(err, plane.ErrInvalid) {
		t.Errorf("empty env: %v", err)
	}
}

func TestOnlyKnownProcessorsShareMemory(t *testing.T) {
	for arch, ok := range map[string]bool{"amd64": true, "arm64": true, "riscv64": false, "loong64": false,
		"ppc64le": false} {
		err := shm.CheckProcessor(arch)
		if (err == nil) != ok || err != nil && (!errors.Is(err, plane.ErrInvalid) || !strings.Contains(err.Error(),
			"transfer_channel: tcp")) {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// The plane does not open on other processors, through any opener.
func TestOtherProcessorsOpenNoPlane(t *testing.T) {
	n := planetest.OpenNode(t, shm.Open, 1, 1, 4096)
	defer shm.SetProcessor("riscv64")()
	_, err := shm.Open(context.Background(), plane.Env{Pool: n.Pool, Sink: n, IDs: &plane.IDs{}, Incarnation: n.Inc,
		Key: planetest.Key})
	if !errors.Is(err, plane.ErrInvalid) || !strings.Contains(err.Error(), "not for riscv64") {
		t.Errorf("got %v; want shm refused, because nobody has argued for riscv64", err)
	}
}
