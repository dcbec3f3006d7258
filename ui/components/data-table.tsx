/**
 * A table of any length: only the visible rows are in the document. Rows have one height, so the place of each is known without measuring.
 *
 * Keys: `j` and `k` or the arrows select a row, Enter opens it, Home and End go to the ends.
 */
import { Component, type ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useKeys } from '../app/keys.ts'
import { navigate } from '../app/location.ts'
import { InRows } from './format.tsx'
import { Link } from './link.tsx'

const ROW_PX = 36
/** Rows above and below the visible ones. */
const MARGIN_ROWS = 8
/** Before the first measurement. */
const FIRST_ROWS = 40

export interface Column<Row> {
  readonly title: string
  readonly cell: (row: Row) => ComponentChildren
  /** Before the link of the first cell. */
  readonly lead?: (row: Row) => ComponentChildren
  /** A track of a CSS grid. Default: `1fr`. */
  readonly width?: string
  readonly isNumber?: boolean
  /** Makes the column sortable. */
  readonly order?: (row: Row) => string | number
  /** The first click sorts in descending order. */
  readonly isDescendingFirst?: boolean
}

interface DataTableProps<Row> {
  readonly label: string
  readonly rows: readonly Row[]
  readonly columns: readonly Column<Row>[]
  /** The view of a row; the first cell is a link to it. Undefined for a row that cannot be opened. */
  readonly linkOf?: (row: Row) => string | undefined
  /** Called with the rows in the document after they have changed, for data that is loaded for these only. */
  readonly onVisible?: (rows: readonly Row[]) => void
  /** The order, if the view keeps it; with `onSort`. */
  readonly sorting?: Sorting
  readonly onSort?: (sorting: Sorting) => void
  /** The rows are in the order of `sorting` already. */
  readonly isSorted?: boolean
  /** Opens or closes a row in place: → and ←. */
  readonly onToggle?: (row: Row, isOpen: boolean) => void
}

export interface Sorting {
  readonly column: number
  readonly isDescending: boolean
}

function sorted<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  sorting: Sorting | undefined,
): readonly Row[] {
  const order = sorting && columns[sorting.column]?.order
  if (!sorting || !order) return rows
  const sign = sorting.isDescending ? -1 : 1
  return rows
    .map((row) => ({ row, value: order(row) }))
    .toSorted((one, other) => (one.value < other.value ? -sign : one.value > other.value ? sign : 0))
    .map(({ row }) => row)
}

export function DataTable<Row>(props: DataTableProps<Row>) {
  const { columns, isSorted = false, label, linkOf, onToggle, onVisible, rows } = props
  const scroller = useRef<HTMLDivElement>(null)
  const [range, setRange] = useState({ first: 0, count: FIRST_ROWS })
  const [selected, setSelected] = useState(-1)
  const [ownSorting, setSorting] = useState<Sorting>()
  const sorting = props.onSort ? props.sorting : ownSorting
  const shown = useMemo(
    () => (isSorted ? rows : sorted(rows, columns, sorting)),
    [rows, isSorted, sorting?.column, sorting?.isDescending],
  )
  const template = columns.map(({ width }) => width ?? 'minmax(0, 1fr)').join(' ')

  const measure = () => {
    const element = scroller.current
    if (!element) return
    const first = Math.max(0, Math.floor(element.scrollTop / ROW_PX) - MARGIN_ROWS)
    const count = Math.ceil(element.clientHeight / ROW_PX) + 2 * MARGIN_ROWS
    setRange((before) => (before.first === first && before.count === count ? before : { first, count }))
  }
  useLayoutEffect(() => {
    measure()
    const observer = new ResizeObserver(measure)
    if (scroller.current) observer.observe(scroller.current)
    return () => observer.disconnect()
  }, [])
  useEffect(() => setSelected((index) => Math.min(index, shown.length - 1)), [shown.length])

  const select = (index: number) => {
    const next = Math.max(0, Math.min(index, shown.length - 1))
    setSelected(next)
    const element = scroller.current
    if (!element) return
    const [top, bottom] = [next * ROW_PX, (next + 2) * ROW_PX]
    if (top < element.scrollTop) element.scrollTop = top
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight
  }
  const open = () => {
    const row = shown[selected]
    const to = row === undefined ? undefined : linkOf?.(row)
    if (to !== undefined) navigate(to)
  }
  const toggle = (isOpen: boolean) => {
    const row = shown[selected]
    if (row !== undefined) onToggle?.(row, isOpen)
  }
  useKeys('Lists', [
    { keys: 'j', label: 'Next row', run: () => select(selected + 1) },
    { keys: 'k', label: 'Previous row', run: () => select(selected - 1) },
    { keys: 'ArrowDown', label: '', run: () => select(selected + 1) },
    { keys: 'ArrowUp', label: '', run: () => select(selected - 1) },
    { keys: 'Home', label: 'First row', run: () => select(0) },
    { keys: 'End', label: 'Last row', run: () => select(shown.length - 1) },
    ...(linkOf ? [{ keys: 'Enter', label: 'Open the row', run: open }] : []),
  ])

  useKeys(
    'Directory',
    onToggle
      ? [
          { keys: 'ArrowRight', label: 'Expand the row', run: () => toggle(true) },
          { keys: 'ArrowLeft', label: 'Collapse the row', run: () => toggle(false) },
        ]
      : [],
  )

  const visible = useMemo(() => shown.slice(range.first, range.first + range.count), [shown, range])
  useEffect(() => onVisible?.(visible), [visible])
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={shown.length + 1}>
      <div class="table-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
        {columns.map((column, index) => (
          <HeadCell
            key={column.title}
            column={column}
            index={index}
            sorting={sorting}
            sort={props.onSort ?? setSorting}
          />
        ))}
      </div>
      <div
        class="table-body"
        role="rowgroup"
        ref={scroller}
        onScroll={measure}
        tabIndex={0}
        aria-label={`Rows of ${label}`}
      >
        <div role="presentation" style={{ height: `${shown.length * ROW_PX}px` }}>
          <div role="presentation" style={{ transform: `translateY(${range.first * ROW_PX}px)` }}>
            <InRows.Provider value>
              {visible.map((row, at) => {
                const index = range.first + at
                // Elements are used again for other rows: creating them costs most of a frame.
                const slot = index % range.count
                const isSelected = index === selected
                return <TableRow key={slot} {...{ row, index, isSelected, template, table: props }} />
              })}
            </InRows.Provider>
          </div>
        </div>
      </div>
    </div>
  )
}

interface TableRowProps<Row> {
  readonly row: Row
  readonly index: number
  readonly isSelected: boolean
  readonly template: string
  /** The same while the table scrolls; others when its view is rendered again, because cells may show other values then. */
  readonly table: DataTableProps<Row>
}

/** Scrolling renders only the rows that appear. */
class TableRow<Row> extends Component<TableRowProps<Row>> {
  override shouldComponentUpdate(next: TableRowProps<Row>): boolean {
    const { index, isSelected, row, table } = this.props
    return next.row !== row || next.index !== index || next.isSelected !== isSelected || next.table !== table
  }

  render({ index, isSelected, row, table: { columns, linkOf }, template }: TableRowProps<Row>) {
    const to = linkOf?.(row)
    return (
      <div
        role="row"
        aria-rowindex={index + 2}
        class={isSelected ? 'table-row table-row-selected' : 'table-row'}
        style={{ gridTemplateColumns: template }}
      >
        {columns.map(({ cell, isNumber, lead, title }, column) => (
          <div key={title} role="cell" class={isNumber ? 'cell cell-number' : 'cell'}>
            {lead?.(row)}
            {column === 0 && to !== undefined ? <Link to={to}>{cell(row)}</Link> : cell(row)}
          </div>
        ))}
      </div>
    )
  }
}

interface HeadCellProps<Row> {
  readonly column: Column<Row>
  readonly index: number
  readonly sorting: Sorting | undefined
  readonly sort: (sorting: Sorting) => void
}

function HeadCell<Row>({
  column: { isDescendingFirst = false, isNumber, order, title },
  index,
  sort,
  sorting,
}: HeadCellProps<Row>) {
  const isSorted = sorting?.column === index
  const direction = sorting?.isDescending ? 'descending' : 'ascending'
  const next = { column: index, isDescending: isSorted ? !sorting.isDescending : isDescendingFirst }
  return (
    <div
      role="columnheader"
      class={isNumber ? 'cell cell-number' : 'cell'}
      aria-sort={isSorted ? direction : undefined}
    >
      {order ? (
        <button type="button" class="sort" onClick={() => sort(next)}>
          {title} {isSorted && <span aria-hidden="true">{sorting.isDescending ? '↓' : '↑'}</span>}
        </button>
      ) : (
        title
      )}
    </div>
  )
}
