"""The manager role: intake of worker messages, slices, admission, dispatch, status mirror and the fleet.

What to do is decided by pure functions (`intake`, `jobs`, `dispatch`, `verdicts`, `fleet`) from views of the cached
objects. They return commands (`commands`), which the shell (`executor`, `admitter`, `inbox`, `app`) carries out.
Nothing outside the shell may read a clock, log, or be async.
"""
