// Package lintersdb is the list of linters with which our golangci-lint is built: the linters that .golangci.yml names.
// The Makefile replaces golangci-lint's list with this list, because the original takes twice as long to compile. A
// linter that is added to .golangci.yml must be added to this list too; otherwise golangci-lint reports an unknown
// linter.
package lintersdb

import (
	"github.com/golangci/golangci-lint/v2/pkg/config"
	"github.com/golangci/golangci-lint/v2/pkg/golinters"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/depguard"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/errcheck"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/exhaustive"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/gochecksumtype"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/govet"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/ineffassign"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/misspell"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/staticcheck"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/unused"
	"github.com/golangci/golangci-lint/v2/pkg/lint/linter"
)

// LinterBuilder replaces the type of the same name in golangci-lint.
type LinterBuilder struct{}

// NewLinterBuilder is called by golangci-lint's commands.
func NewLinterBuilder() *LinterBuilder { return &LinterBuilder{} }

// Build returns the linters with their settings. It returns nil without a configuration.
func (LinterBuilder) Build(c *config.Config) ([]*linter.Config, error) {
	if c == nil {
		return nil, nil
	}
	s := &c.Linters.Settings
	return []*linter.Config{
		parsed(depguard.New(&s.Depguard, config.NewPlaceholderReplacer(c))),
		parsed(ineffassign.New(&s.Ineffassign)),
		parsed(misspell.New(&s.Misspell)).WithAutoFix(),
		typed(errcheck.New(&s.Errcheck)),
		typed(exhaustive.New(&s.Exhaustive)),
		typed(gochecksumtype.New(&s.GoChecksumType)),
		typed(govet.New(&s.Govet)),
		typed(staticcheck.New(&s.Staticcheck)).WithAutoFix(),
		typed(unused.New(&s.Unused)).ConsiderSlow().WithChangeTypes(),
		typed(golinters.NewTypecheck()), // Required: it reports code that does not compile.
	}, nil
}

// parsed returns the configuration of a linter that needs only syntax. Every linter must give a first version.
func parsed(l linter.Linter) *linter.Config { return linter.NewConfig(l).WithSince("v1.0.0") }

// typed returns the configuration of a linter that also needs types.
func typed(l linter.Linter) *linter.Config { return parsed(l).WithLoadForGoAnalysis() }
