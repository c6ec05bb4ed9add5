package version

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStringNamesBuildAndPlatform(t *testing.T) {
	t.Parallel()
	require.Equal(t, "rollcall "+Version+" ("+runtime.Version()+", "+runtime.GOOS+"/"+runtime.GOARCH+")", String())
	require.NotEmpty(t, Version, "a build without a stamp has a version too")
}
