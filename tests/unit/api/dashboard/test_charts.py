"""Charts: their numbers, and that they cannot lie."""

from hypothesis import given
from hypothesis import strategies as st

from cloister_api.dashboard.charts import HEIGHT, MOST_SERIES, WIDTH, curves, short, stacks


def test_bars_are_as_high_as_their_values() -> None:
    chart = stacks([("a", {"x": 1.0, "y": 3.0}), ("b", {"x": 2.0}), ("c", {})])
    assert chart is not None
    assert (chart.names, chart.begin, chart.end) == (("x", "y"), "a", "c") or chart.names == (
        "y",
        "x",
    )
    tops = [sum(piece.height for piece in bar.pieces) for bar in chart.bars]
    assert tops == [HEIGHT, HEIGHT / 2, 0]
    assert [tick.text for tick in chart.ticks] == ["0", "1", "2", "3", "4"]


def test_the_smallest_series_are_one() -> None:
    values = {f"s{number}": float(20 - number) for number in range(12)}
    chart = stacks([("a", values)])
    assert chart is not None
    assert chart.names == (*[f"s{number}" for number in range(MOST_SERIES)], "others")
    assert round(sum(piece.height for piece in chart.bars[0].pieces)) <= HEIGHT


def test_nothing_is_drawn_of_nothing() -> None:
    assert stacks([("a", {}), ("b", {"x": 0.0})]) is None
    assert curves([("a", {"x": None})]) is None


def test_a_curve_is_broken_where_nothing_is_known() -> None:
    chart = curves([(str(n), {"x": v}) for n, v in enumerate((0.0, 50.0, None, 100.0))], most=100)
    assert chart is not None
    (curve,) = chart.curves
    assert curve.lines == (f"0.0,{float(HEIGHT)} 240.0,100.0", f"{WIDTH}.0,0.0 {WIDTH}.0,0.0")


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=100))
def test_no_bar_leaves_the_drawing(values: list[float]) -> None:
    chart = stacks([(str(n), {"x": value}) for n, value in enumerate(values)])
    if chart is None:
        assert not any(values)
        return
    for bar in chart.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 0.1
        for piece in bar.pieces:
            assert -0.1 <= piece.y <= piece.y + piece.height <= HEIGHT + 0.1


def test_numbers_are_short() -> None:
    given = (0, 0.25, 5, 999, 1000, 2.5e6, 3e9)
    assert [short(each) for each in given] == ["0", "0.25", "5", "999", "1k", "2.5M", "3G"]
