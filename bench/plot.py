"""Line charts as SVG files, all of one look. Needs Debian's python3-matplotlib."""
import sys

try:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
except ImportError:
    sys.exit(f"plots need matplotlib, which {sys.executable} does not have: apt-get install python3-matplotlib, and run this "
             "with /usr/bin/python3")

matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "isomer", "font.size": 10,
                            "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                            "axes.spines.right": False})


def lines(path, title, x_label, y_label, series, log_x=False):
    """Writes one chart. `series` maps a label to its points [(x, y), ...]; the y axis starts at
    zero, so that heights compare."""
    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    for label, points in series.items():
        axes.plot(*zip(*sorted(points)), marker="o", markersize=4, label=label)
    if log_x:
        axes.set_xscale("log", base=2)
        ticks = sorted({x for points in series.values() for x, _ in points})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    top = max(y for points in series.values() for _, y in points)
    axes.set(title=title, xlabel=x_label, ylabel=y_label, ylim=(0, 1.08 * top))
    if len(series) > 1:
        axes.legend()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def round_ticks(values):
    """Round numbers within the range of the values, a few a power of ten, more where it is narrow."""
    low, high = min(values), max(values)
    for steps in (1, 2, 5), (1, 1.5, 2, 3, 5, 7):
        ticks = [step * 10.0 ** power for power in range(-3, 9) for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) > 2:
            break
    return ticks


def distributions(path, panels):
    """Writes one chart a panel, side by side: the share of values within each value. `panels` holds
    (title, {label: values})."""
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 3), sharey=True)
    for axes, (title, series) in zip(all_axes, panels):
        for label, values in series.items():
            shares = [(i + 1) / len(values) for i in range(len(values))]
            axes.plot(sorted(values), shares, label=label)
        axes.set_xscale("log")
        ticks = round_ticks([value for values in series.values() for value in values])
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set(title=title, ylim=(0, 1))
    all_axes[0].yaxis.set_major_formatter("{x:.0%}")
    all_axes[-1].legend()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
