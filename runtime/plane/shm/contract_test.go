package shm_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/plane/internal/nontemporal"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

func TestMain(m *testing.M) { planetest.Main(m, shm.Open) }

func TestContract(t *testing.T) { planetest.Run(t, shm.Open) }

func TestReadsNeedNoOwner(t *testing.T) { planetest.ReadFromFrozen(t, shm.Open) }

// One copy thread and two take turns with the alternatives that they are compared to.
func BenchmarkPush64x1MiB(b *testing.B) {
	planetest.BenchPushes(b, nontemporal.Copy, planetest.Contender{Name: "shm1", Open: shm.Config{Copiers: 1}.Open},
		planetest.Contender{Name: "shm2", Open: shm.Config{Copiers: 2}.Open})
}

// Reads take turns with pushes over the same links, and with the alternatives that both are compared to.
func BenchmarkRead64x1MiB(b *testing.B) {
	planetest.BenchReads(b, planetest.Contender{Name: "shm1", Open: shm.Config{Copiers: 1}.Open},
		planetest.Contender{Name: "shm2", Open: shm.Config{Copiers: 2}.Open})
}

func BenchmarkPush4KiB(b *testing.B) { planetest.BenchSmallPush(b, shm.Open) }

func BenchmarkRead4KiB(b *testing.B) { planetest.BenchSmallRead(b, shm.Open) }

func BenchmarkKilled(b *testing.B) { planetest.BenchKilled(b, shm.Open) }
