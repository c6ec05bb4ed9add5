// Package version says which build this is.
package version

import (
	"fmt"
	"runtime"
)

// Version is stamped by the build (-ldflags -X).
var Version = "dev"

// String is the version with the Go version and platform.
func String() string {
	return fmt.Sprintf("rollcall %s (%s, %s/%s)", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
